package record

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// ocamlSites finds the sites of a program of OCaml's, of which at least some percent are to be traced.
func ocamlSites(t *testing.T, path string, percent int) (*elfio.File, []Site) {
	t.Helper()
	f := open(t, path)
	sites, err := Find(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	own, all := 0, 0
	for i := range sites {
		s := &sites[i]
		if s.Kind == KindOCaml {
			own++
		}
		if s.Kind == KindOCaml || s.Reason == ReasonOCamlNoRoom {
			all++
		}
	}
	if t.Logf("%d of %d functions of OCaml's", own, all); own < 1000 || own*100 < all*percent {
		t.Errorf("%s: %d of %d functions of OCaml's are traced", path, own, all)
	}
	return f, sites
}

// recorded returns which ends of a function are recorded, and that its entry is, once.
func recorded(t *testing.T, s *Site) map[uint64]bool {
	t.Helper()
	ends, entries := map[uint64]bool{}, 0
	for r := range s.runs() {
		for _, e := range r.Events {
			if at := r.Addr + uint64(e.At); e.Exit {
				ends[at] = true
			} else if entries++; at != s.Func {
				t.Errorf("%s: the entry is recorded at %#x", s.Name, at)
			}
		}
	}
	if entries != 1 {
		t.Errorf("%s: %d entries", s.Name, entries)
	}
	return ends
}

// TestOCamlSites has another decoder say where OCaml's functions end, and what must not move: what touches the stack first, and
// calls, as the collector looks up where they return to.
func TestOCamlSites(t *testing.T) {
	testtool.Need(t, "ocamlopt")
	path, err := exec.LookPath("ocamlopt.opt")
	if err != nil {
		t.Fatal(err)
	}
	f, sites := ocamlSites(t, path, 95)
	if f.Header.Machine.String() != "EM_X86_64" {
		t.Skip("ocamlopt.opt is another machine's")
	}
	var taken []*Site
	for i := range sites {
		if s := &sites[i]; s.Kind == KindOCaml {
			taken = append(taken, s)
			checkOCamlAMD64(t, f, s)
		}
	}
	checkApart(t, taken)
}

func checkOCamlAMD64(t *testing.T, f *elfio.File, s *Site) {
	t.Helper()
	ends := recorded(t, s)
	code, err := f.Bytes(s.Func, int(s.Size))
	if err != nil {
		t.Fatal(err)
	}
	moves := func(pc uint64) bool {
		for r := range s.runs() {
			if pc-r.Addr < uint64(r.Len) {
				return true
			}
		}
		return false
	}
	var last, before x86asm.Inst
	for o := 0; o < len(code); {
		pc := s.Func + uint64(o)
		in, err := x86asm.Decode(code[o:], 64)
		if err != nil {
			t.Fatalf("%s: %#x: %v", s.Name, pc, err)
		}
		end := in.Op == x86asm.RET
		if rel, ok := in.Args[0].(x86asm.Rel); ok && in.Op == x86asm.JMP {
			end = uint64(o+in.Len+int(rel)) >= s.Size
		} else if in.Op == x86asm.JMP {
			handler := last.Op == x86asm.POP && before.Op == x86asm.POP
			table := last.Op == x86asm.ADD && before.Op == x86asm.MOVSXD
			end = !handler && !table
		}
		if end != ends[pc] {
			t.Errorf("%s: %v at %#x: recorded is %v", s.Name, in, pc, ends[pc])
		}
		if moves(pc) {
			mem, ok := in.Args[0].(x86asm.Mem)
			writes := ok && mem.Base == x86asm.RSP && in.Op != x86asm.CMP && in.Op != x86asm.TEST
			if writes || in.Op == x86asm.PUSH || in.Op == x86asm.CALL {
				t.Errorf("%s: %v at %#x moves", s.Name, in, pc)
			}
		}
		last, before = in, last
		o += in.Len
	}
}

// checkApart: no byte is rewritten twice.
func checkApart(t *testing.T, sites []*Site) {
	t.Helper()
	type span struct{ lo, hi uint64 }
	var all []span
	for _, s := range sites {
		for r := range s.runs() {
			all = append(all, span{r.Addr, r.Addr + uint64(max(r.Len, r.Room))})
			if r.Outside {
				all = append(all, span{r.Via, r.Via + 5})
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return int(int64(a.lo - b.lo)) })
	for i := 1; i < len(all); i++ {
		if all[i].lo < all[i-1].hi {
			t.Errorf("%#x to %#x and %#x to %#x overlap", all[i-1].lo, all[i-1].hi, all[i].lo, all[i].hi)
		}
	}
}

// TestOCamlSitesARM64 is the same for AArch64.
func TestOCamlSitesARM64(t *testing.T) {
	var path string
	err := filepath.WalkDir(debs.ARM64(t, "unison-2.52"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "unison-2.52" && d.Type().IsRegular() {
			path = p
		}
		return err
	})
	if err != nil || path == "" {
		t.Fatalf("no program: %v", err)
	}
	f, sites := ocamlSites(t, path, 99)
	for i := range sites {
		s := &sites[i]
		if s.Kind != KindOCaml {
			continue
		}
		ends := recorded(t, s)
		code, err := f.Bytes(s.Func, int(s.Size))
		if err != nil {
			t.Fatal(err)
		}
		trap := false
		for o := 0; o+4 <= len(code); o += 4 {
			pc := s.Func + uint64(o)
			in, err := arm64asm.Decode(code[o:])
			if err != nil {
				t.Fatalf("%s: %#x: %v", s.Name, pc, err)
			}
			end := in.Op == arm64asm.RET && !trap
			if to, ok := in.Args[0].(arm64asm.PCRel); ok && in.Op == arm64asm.B {
				end = uint64(o)+uint64(int64(to)) >= s.Size
			} else if in.Op == arm64asm.BR {
				end = in.Args[0] != arm64asm.X16 && in.Args[0] != arm64asm.X17
			}
			if end != ends[pc] {
				t.Errorf("%s: %v at %#x: recorded is %v", s.Name, in, pc, ends[pc])
			}
			trap = in.Args[0] == arm64asm.X26
			if mem, ok := in.Args[1].(arm64asm.MemImmediate); ok && o == 0 && in.Op == arm64asm.STR {
				t.Errorf("%s: %v at %#x moves: %v", s.Name, in, pc, mem)
			}
		}
	}
}
