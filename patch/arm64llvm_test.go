package patch_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// LLVM's unwinder, which reads unwind information with code of its own, finds the same return addresses in a traced
// program as in the original: in frames that are reserved at once and in steps, and in functions that save nothing.
func TestLLVMUnwinderARM64(t *testing.T) {
	const text = `
#include <stdio.h>
#include <string.h>
#define NI __attribute__((noinline))
typedef struct { unsigned long data[256]; } unw_context_t;
typedef struct { unsigned long data[256]; } unw_cursor_t;
int unw_getcontext(unw_context_t *), unw_init_local(unw_cursor_t *, unw_context_t *), unw_step(unw_cursor_t *);
int unw_get_reg(unw_cursor_t *, int, unsigned long *);
int main(int, char **);
NI void walk(void) {
	unw_context_t c; unw_cursor_t u; unsigned long ip, n = 0;
	unw_getcontext(&c); unw_init_local(&u, &c);
	while (unw_step(&u) > 0 && n++ < 20) {
		unw_get_reg(&u, -1, &ip);
		long d = (long)(ip - (unsigned long)main);
		if (d > -100000 && d < 100000) printf("main%+ld\n", d);
	}
}
NI int leaf(int x) { char b[40]; memset(b, x, sizeof b); walk(); __asm__ volatile("" : : "r"(b) : "memory"); return b[x]; }
NI int big(int x) { char b[5000]; memset(b, x, sizeof b); int r = leaf(x); __asm__ volatile("" : : "r"(b) : "memory"); return r + b[x]; }
NI int mid(int x) { int r = big(x); __asm__ volatile(""); return r * 2; }
int main(int argc, char **argv) { printf("%d\n", mid(argc)); walk(); return 0; }
`
	dir := filepath.Join(debs.ARM64(t, "libunwind-14"), "usr", "lib", "aarch64-linux-gnu")
	library := filepath.Join(dir, "libunwind.so.1")
	for _, flags := range []string{"-O2", "-O0 -fstack-protector-all", "-O1 -no-pie"} {
		bin := onARM64.compile(t, "u.c", text, append(strings.Fields(flags), library, "-Wl,-rpath,"+dir,
			"-Wl,--allow-shlib-undefined")...)
		want := output(t, onARM64, bin)
		if strings.Count(want, "main") < 5 {
			t.Fatalf("%s: the original finds %s", flags, want)
		}
		patched := filepath.Join(t.TempDir(), "patched")
		p := patchPlain(t, read(t, bin), patch.Options{}, record.Options{}, patched)
		if got := output(t, onARM64, patched); got != want {
			t.Errorf("%s, %d functions:\n%s\nwant\n%s", flags, p.Traced(), got, want)
		}
	}
}
