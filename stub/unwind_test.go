package stub

import (
	"debug/elf"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestUnwindRuntime: at every instruction of arm64's assembly that a program comes
// to, an unwinder gets from there to main.
func TestUnwindRuntime(t *testing.T) {
	for _, tr := range tracers {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			f := buildFixture(t, "unwind.c", buildOptions{on: onARM64, tracer: tr.name, config: tr.config})
			e, err := elf.Open(f.path)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			syms, err := e.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			var args []string
			total := 0
			for _, s := range syms {
				if s.Name == "fentry_"+tr.name+"_enter" || s.Name == "fentry_"+tr.name+"_exit" {
					args = append(args, fmt.Sprintf("%x", s.Value), fmt.Sprintf("%x", s.Size))
					total += int(s.Size) / 4
				}
			}
			name := func(a uint64) string {
				for _, s := range syms {
					if elf.ST_TYPE(s.Info) == elf.STT_FUNC && a-s.Value < s.Size {
						return s.Name
					}
				}
				return ""
			}
			out, _ := f.run(t, args...)
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
			if n < total/2 {
				t.Errorf("%d of %d instructions", n, total)
			}
			t.Logf("%d of %d instructions", n, total)
		})
	}
}
