package patch_test

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// The functions that do things at once have a call with a handler among their first instructions, if they are optimized.
const handled = `
#include <cstdio>
#include <exception>
#include <stdexcept>
#define NI __attribute__((noinline))
struct G { int n; ~G() { printf("~%d\n", n); } };
int what;
NI void thrower() {
	switch (what) {
	case 0: return;
	case 1: throw 1;
	case 2: throw 2L;
	case 3: throw std::runtime_error("three");
	case 4: throw "four";
	}
}
NI void one_type() { try { thrower(); } catch (int x) { printf("int %d\n", x); } }
NI void types() {
	try { thrower(); } catch (int x) { printf("int %d\n", x); } catch (long x) { printf("long %ld\n", x); }
	catch (std::exception &e) { printf("exception %s\n", e.what()); }
}
NI void anything() { try { thrower(); } catch (...) { puts("anything"); } }
NI void again() { try { thrower(); } catch (...) { puts("again"); throw; } }
NI void cleanup() { G g{7}; thrower(); }
NI void nested() { try { try { thrower(); } catch (long x) { printf("inner %ld\n", x); } } catch (...) { puts("outer"); } }
NI void listed() throw(int, std::exception) { thrower(); puts("no exception"); }
NI void listed_cleanup() throw(const char *) { G g{8}; thrower(); }
NI void nothing() noexcept { thrower(); puts("nothing was thrown"); }
int main(int argc, char **argv) {
	std::set_terminate([] { puts("terminated"); fflush(stdout); _Exit(7); });
	std::set_unexpected([] { puts("unexpected"); throw 1; });
	void (*all[])() = {one_type, types, anything, again, cleanup, nested, listed};
	for (what = 0; what <= 4; what++)
		for (auto f : all)
			try { f(); } catch (std::exception &e) { printf("main: %s\n", e.what()); } catch (int x) { printf("main: %d\n", x); }
			catch (...) { puts("main: something"); }
	what = 0, nothing();
	what = 4;
	try { listed_cleanup(); } catch (const char *s) { puts(s); }
	if (argc > 1) listed_cleanup();
	what = argc, nothing();
}
`

// TestHandlersDisplaced throws through displaced calls that have handlers of every kind.
func TestHandlersDisplaced(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("on other machines one instruction is displaced, which is no such call")
	}
	for _, flags := range []string{
		"-O0", "-O1", "-O2", "-O2 -no-pie -fno-pie", "-Os", "-O2 -static", "-O2 -static-pie -s", "-O2 -fcf-protection",
		"clang -O2", "clang -Oz -no-pie", "clang -O1 -static",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			bin := onAMD64.compile(t, "h.cpp", handled, append(strings.Fields(flags), "-std=c++14", "-w")...)
			want := output(t, onAMD64, bin)
			for _, o := range []patch.Options{{}, {Tracer: patch.Function}} {
				patched := filepath.Join(filepath.Dir(bin), "patched")
				p := patchPlain(t, read(t, bin), o, record.Options{}, patched)
				catches := 0
				for i := range p.Functions {
					if fn := &p.Functions[i]; fn.Catches && fn.ID != 0 {
						catches++
					}
				}
				if catches < 6 && !strings.Contains(flags, "-O0") {
					t.Errorf("%d functions whose displaced calls have handlers", catches)
				}
				if got := output(t, onAMD64, patched); got != want {
					t.Errorf("%v, %d functions:\n%s\nwant\n%s", o.Tracer, p.Traced(), got, want)
				}
			}
		})
	}
}
