package stub

import (
	"debug/elf"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// trapped builds testdata/unwind.c and returns where a tracer's routines are in it,
// as its arguments, and how many instructions they have.
func trapped(t *testing.T, tracer string, c Config) (f *fixture, syms []elf.Symbol, args []string, n int) {
	t.Helper()
	f = buildFixture(t, "unwind.c", buildOptions{on: onARM64, tracer: tracer, config: c})
	e, err := elf.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if syms, err = e.Symbols(); err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		if s.Name == "fentry_"+tracer+"_enter" || s.Name == "fentry_"+tracer+"_exit" {
			args = append(args, fmt.Sprintf("%x", s.Value), fmt.Sprintf("%x", s.Size))
			n += int(s.Size) / 4
		}
	}
	return f, syms, args, n
}

// TestSignalEverywhere: a signal handler that calls traced functions comes behind
// every instruction of arm64's assembly that a program gets to. Nothing is lost.
func TestSignalEverywhere(t *testing.T) {
	calls := "3"
	if testtool.Wide() {
		calls = "5000" // a chunk and more
	}
	for _, tr := range tracers {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			f, _, args, n := trapped(t, tr.name, tr.config)
			out, ev := f.run(t, append([]string{calls}, args...)...)
			expectCounts(t, out, ev)
			if ev.lost != 0 || tr.name != "func" && (ev.strays != 0 || ev.open != 0) {
				t.Errorf("%d lost, %d exits without entry, %d open", ev.lost, ev.strays, ev.open)
			}
			for name, p := range ev.profile {
				if p.self > p.total || p.max > p.total {
					t.Errorf("%s: %+v", name, p)
				}
			}
			t.Logf("%d instructions", n)
		})
	}
}

// TestUnwindRuntime: at every instruction of arm64's assembly that a program comes
// to, an unwinder gets from there to main.
func TestUnwindRuntime(t *testing.T) {
	for _, tr := range tracers {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			f, syms, args, total := trapped(t, tr.name, tr.config)
			name := func(a uint64) string {
				for _, s := range syms {
					if elf.ST_TYPE(s.Info) == elf.STT_FUNC && a-s.Value < s.Size {
						return s.Name
					}
				}
				return ""
			}
			out, _ := f.run(t, append([]string{"0"}, args...)...)
			n := 0
			for line := range strings.Lines(out) {
				var names []string
				words := strings.Fields(line)
				depth, err := strconv.Atoi(words[0])
				if err != nil {
					t.Fatalf("%q", line)
				}
				trapped := ""
				for _, w := range words[1:] {
					a, err := strconv.ParseUint(w, 16, 64)
					if err != nil {
						t.Fatalf("%q", line)
					}
					switch s := name(a); {
					case strings.HasPrefix(s, "fentry_"):
						trapped = s + " " + w
					case slices.Contains([]string{"top", "mid", "main"}, s) && trapped != "":
						names = append(names, s)
					}
				}
				want := []string{"mid", "top", "main"}[2-depth:]
				if trapped == "" || !slices.Equal(names, want) {
					t.Errorf("at %s: %v, want %v: %s", trapped, names, want, line)
				}
				n++
			}
			least := total / 2
			if tr.name == "count" { // the home's thunks count by themselves: most is for other images
				least = total / 3
			}
			if n < least {
				t.Errorf("%d of %d instructions", n, total)
			}
			t.Logf("%d of %d instructions", n, total)
		})
	}
}
