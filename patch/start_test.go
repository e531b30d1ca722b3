package patch_test

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/patch"
)

// The relocation that starts the runtime is added to the smaller one of the two tables that can have it: of a program
// with many pointers to that of the PLT. Both work for programs that are bound lazily and at once: what runs while the
// loader relocates, before any constructor, is traced.
func TestStartingRelocation(t *testing.T) {
	const text = `
#include <stdio.h>
#include <stdlib.h>
#define NI __attribute__((noinline))
NI int early(void) { __asm__ volatile(""); return 41; }
__attribute__((constructor)) static void construct(void) { if (early() != 41) abort(); }
#define P1 early,
#define P8 P1 P1 P1 P1 P1 P1 P1 P1
int (*const pointers[])(void) = { P8 P8 P8 P8 };
int main(int argc, char **argv) { printf("%d %s\n", pointers[argc](), getenv("HOME") ? "" : "homeless"); return 0; }
`
	for _, on := range targets {
		for name, c := range map[string]struct {
			flags []string
			moved string
		}{
			"lazy":   {[]string{"-Wl,-z,lazy"}, ".rela.plt"},
			"now":    {[]string{"-Wl,-z,now"}, ".rela.plt"},
			"no pie": {[]string{"-no-pie", "-Wl,-z,lazy"}, ".rela.dyn"},
		} {
			t.Run(on.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{on.kinds["patchable"][0]}, c.flags...)
				bin := on.compile(t, "s.c", text, flags...)
				orig := read(t, bin)
				p := plan(t, orig, patch.Options{})
				out, err := p.Image()
				if err != nil {
					t.Fatal(err)
				}
				if err := runfile.WriteFile(bin, out); err != nil {
					t.Fatal(err)
				}
				was, is := relocations(t, orig), relocations(t, out)
				for section := range was {
					added := uint64(0)
					if section == c.moved {
						added = 1
					}
					if is[section] != was[section]+added {
						t.Errorf("%s: %d relocations, was %d", section, is[section], was[section])
					}
				}
				want, got := output(t, on, bin), ""
				if got, _, _ = run(t, on, orig); got+"<nil>" != want {
					t.Errorf("patched: %q, original: %q", want, got)
				}
				if calls := callsOf(t, filepath.Dir(bin), p); calls["early"] != 2 || calls["construct"] != 1 {
					t.Errorf("calls: %v", calls)
				}
			})
		}
	}
}

// relocations says how many relocations sections have, by name.
func relocations(t *testing.T, image []byte) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	f := parse(t, image)
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Type == elf.SHT_RELA {
			out[s.Name] = s.Size / 24
		}
	}
	return out
}
