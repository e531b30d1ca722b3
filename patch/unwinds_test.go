package patch

import (
	"os"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// Of an image without a search table, as tcc makes them, unwinders know nothing, unless it tells them, or has its own. So it needs
// no room for a program header more.
func TestUnwinds(t *testing.T) {
	const text = `
#include <stdio.h>
#ifdef WALKS
#include <unwind.h>
static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *p) { ++*(int *)p; return _URC_NO_REASON; }
#endif
#ifdef REGISTERS
void __register_frame(void *);
#endif
int main(int argc, char **argv)
{
	int n = 0;
#ifdef WALKS
	_Unwind_Backtrace(frame, &n);
#endif
#ifdef REGISTERS
	__register_frame(argv);
#endif
	return printf("%d\n", n) > 9;
}
`
	for _, c := range []struct {
		name  string
		flags []string
		want  bool
	}{
		{"dynamic", nil, false},
		{"dynamic, stripped", []string{"-s"}, false},
		{"dynamic, walks", []string{"-s", "-DWALKS"}, true},
		{"dynamic, registers", []string{"-s", "-DREGISTERS"}, true},
		{"static, stripped", []string{"-static", "-s"}, true},
		{"no tables", []string{"-s", "-nostartfiles", "-nostdlib", "-static", "-fno-asynchronous-unwind-tables", "-Wl,-emain", "-Wl,--unresolved-symbols=ignore-all"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := testtool.Compile(t, "program", text, append([]string{"-Wl,--no-eh-frame-hdr"}, c.flags...)...)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := elfio.Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if got := (&Plan{file: f}).unwinds(); got != c.want {
				t.Error(got)
			}
		})
	}
}
