//go:build linux

package fentry_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestFormattedArguments: what functions with a format are called with is shown by that, on both machines: numbers and
// floating point in registers and on the stack, behind parameters of both, and texts as they were at the call, wherever
// pointers lead.
func TestFormattedArguments(t *testing.T) {
	const source = `
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <wchar.h>
__attribute__((noipa)) int f_log(const char *format, ...) { return format != 0; }
__attribute__((noipa)) int f_more(double scale, int level, float x, const char *fmt, ...) { return level + (scale > x); }
__attribute__((noipa)) int f_list(const char *first, ...) { return first != 0; }
int main(void)
{
	char text[101], many[] = "%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d", large[401];
	char *two = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(two, 'x', 8192);
	munmap(two + 4096, 4096);
	memset(text, 't', 100);
	text[100] = 0;
	memset(large, ' ', 400);
	memcpy(large, "%d", 2);
	memcpy(large + 390, "%d", 2);
	large[400] = 0;
	f_log("none");
	f_log("%d %u %c %hhd %hd %x %o", -1, UINT_MAX, 'A', 300, 70000, 255, 8);
	f_log("%ld %lu %llx %zu %jd %td", LONG_MIN, ULONG_MAX, 1LL << 40, (size_t)7, (__INTMAX_TYPE__)-7, (__PTRDIFF_TYPE__)9);
	f_log("%s and %s", "one", "two");
	f_log("%f %e %g %a", 0.5, -1e100, 1.25, 3.0);
	f_log("%d %f %d %f %d %f %d %f %d %f %d %f %d %f", 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5);
	f_log("%f %f %f %f %f %f %f %f %f %d %f %s", 1., 2., 3., 4., 5., 6., 7., 8., 9., 1, 10., "stack");
	f_log("%Lf %d %Lf %s", 2.5L, 1, -4.25L, "long");
	f_log("%d %d %d %d %d %d %d %d %Lf %d", 1, 2, 3, 4, 5, 6, 7, 8, 0.5L, 9);
	f_log("%*d %-*.*f %.*s", 5, 1, 6, 2, 1.5, 3, "abcdef");
	f_log("%.3s %.0s %.*s %5.2s", "abcdef", "no", -1, "all", "xyz");
	f_log("%.4s %s", two + 4092, two + 4092);
	f_log("%s %s %s", (char *)0, (char *)16, (char *)-1L);
	f_log("%% %m %n %p %ls", (int *)0x1234, (void *)0x5678, L"wide");
	f_log("%s", text);
	f_log("%s %s %s %s %s %s %s %s %s %d", "1", "2", "3", "4", "5", "6", "7", "8", "9", 10);
	f_log(many, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17);
	f_log(large, 1, 2);
	f_log("%d %y %d", 1, 2, 3);
	f_log("%1$d", 1);
	f_log("%", 1);
	f_log((char *)16, 1);
	f_log(0);
	f_more(1.5, 2, 0.5f, "%s %f %d", "three", 2.5, 4);
	f_more(1.5, 2, 0.5f, "%f %f %f %f %f %f %f", 1., 2., 3., 4., 5., 6., 7.);
	f_list("ls", "-l", (char *)0);
	for (int i = 0; i < 3000; i++)
		f_log("%s%s%s%s%s%s%s%s %d", text, text, text, text, text, text, text, text, i);
	return 0;
}
`
	want := []string{
		`f_log("none")`,
		`f_log("%d %u %c %hhd %hd %x %o", -1, 4294967295, 'A', 44, 4464, 0xff, 010)`,
		`f_log("%ld %lu %llx %zu %jd %td", -9223372036854775808, 18446744073709551615, 0x10000000000, 7, -7, 9)`,
		`f_log("%s and %s", "one", "two")`,
		`f_log("%f %e %g %a", 0.5, -1e+100, 1.25, 3)`,
		`f_log("%d %f %d %f %d %f %d %f %d %f %d %f %d %f", 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5)`,
		`f_log("%f %f %f %f %f %f %f %f %f %d %f %s", 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 10, "stack")`,
		`f_log("%Lf %d %Lf %s", 2.5, 1, -4.25, "long")`,
		`f_log("%d %d %d %d %d %d %d %d %Lf %d", 1, 2, 3, 4, 5, 6, 7, 8, 0.5, 9)`,
		`f_log("%*d %-*.*f %.*s", 5, 1, 6, 2, 1.5, 3, "abc")`,
		`f_log("%.3s %.0s %.*s %5.2s", "abc", "", -1, "all", "xy")`,
		`f_log("%.4s %s", "xxxx", "xxxx"...)`,
		`f_log("%s %s %s", NULL, <0x10>, <0xffffffffffffffff>)`,
		`f_log("%% %m %n %p %ls", 0x1234, 0x5678, 0x`,
		`f_log("%s", "` + strings.Repeat("t", 64) + `"...)`,
		`f_log("%s %s %s %s %s %s %s %s %s %d", "1", "2", "3", "4", "5", "6", "7", "8", 0x`,
		`f_log("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ...)`,
		`f_log("%d` + strings.Repeat(" ", 254) + `"..., 1, ...)`,
		`f_log("%d %y %d", 1, ...)`,
		`f_log("%1$d", ...)`,
		`f_log("%", ...)`,
		`f_log(<0x10>, ...)`,
		`f_log(NULL, ...)`,
		`f_more(1.5, 2, 0.5, "%s %f %d", "three", 2.5, 4)`,
		`f_more(1.5, 2, 0.5, "%f %f %f %f %f %f %f", 1, 2, 3, 4, 5, 6, 7)`,
		`f_list("ls", ...)`,
	}
	last := `f_log("%s%s%s%s%s%s%s%s %d"` + strings.Repeat(`, "`+strings.Repeat("t", 64)+`"...`, 8) + ", "
	for _, b := range []struct {
		name string
		cc   []string
		arch string
	}{
		{"gcc", []string{"gcc", "-O1", "-pg", "-mfentry"}, "amd64"},
		{"clang", []string{"clang", "-O0", "-pg", "-mfentry"}, "amd64"},
		{"arm64", []string{"aarch64-linux-gnu-gcc", "-O2", "-fpatchable-function-entry=2"}, "arm64"},
	} {
		t.Run(b.name, func(t *testing.T) {
			testtool.Need(t, b.cc[0])
			if b.arch != runtime.GOARCH {
				testtool.Need(t, map[string]string{"arm64": "qemu-aarch64", "amd64": "qemu-x86_64"}[b.arch])
			}
			got := recordCaptured(t, source, "c", slices.Concat(b.cc, []string{"-g", "-w"}))
			if len(got) != len(want)+3000 {
				t.Fatalf("%d calls:\n%.3000s", len(got), strings.Join(got, "\n"))
			}
			for i, call := range got {
				w := last
				if i < len(want) {
					w = want[i]
				}
				if !strings.HasPrefix(call, w) {
					t.Fatalf("got  %s\nwant %s", call, w)
				}
			}
		})
	}
}
