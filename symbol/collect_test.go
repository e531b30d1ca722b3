package symbol

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// frameList is an unwind table in memory.
type frameList []ehframe.FDE

func (l frameList) Len() int             { return len(l) }
func (l frameList) At(i int) ehframe.FDE { return l[i] }

// plainCollect is collect in one sort.
func plainCollect(t *Table) []Func {
	var all, out []Func
	for _, s := range []*source{symbols(t.syms, SourceSymtab, false, nil), symbols(t.dynsym, SourceDynsym, true, nil), t.frames()} {
		for _, k := range s.keys {
			all = append(all, s.at(k.i))
		}
	}
	slices.SortStableFunc(all, compareFuncs)
	for _, fn := range all {
		n := len(out)
		switch {
		case n > 0 && fn.rank == rankNone && out[n-1].describedBy(&fn):
		case n > 0 && out[n-1].Addr == fn.Addr:
			if out[n-1].Size == 0 {
				out[n-1].Size = fn.Size
			}
			out[n-1].Ifunc = out[n-1].Ifunc || fn.Ifunc
			out[n-1].Part = out[n-1].Part || fn.Part
		default:
			out = append(out, fn)
		}
	}
	return out
}

// otherNames are a function's aliases.
func otherNames(t *Table, fn *Func) []string {
	var names []string
	for _, s := range []*source{symbols(t.syms, SourceSymtab, false, nil), symbols(t.dynsym, SourceDynsym, true, nil)} {
		for _, k := range s.keys {
			if other := s.at(k.i); other.Addr == fn.Addr && other.Name != fn.Name {
				names = append(names, other.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestCollect(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for round := range 300 {
		tab := &Table{f: &elfio.File{}}
		var fdes frameList
		addr := func() uint64 { return uint64(0x400000 + r.IntN(60)*4) }
		if round%3 == 0 {
			addr = func() uint64 { return r.Uint64() >> r.IntN(64) }
		}
		sym := func() elfio.Symbol {
			typ := []elf.SymType{elf.STT_FUNC, elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_OBJECT}[r.IntN(4)]
			return elfio.Symbol{Name: fmt.Sprintf("%.*sf%d", r.IntN(3), "__", r.IntN(9)), Value: addr(), Size: uint64(r.IntN(4) * 8),
				Info: elf.ST_INFO(elf.SymBind(r.IntN(4)), typ), Shndx: uint16(r.IntN(3))}
		}
		for range r.IntN(50) {
			tab.syms = append(tab.syms, sym())
		}
		for range r.IntN(20) {
			tab.dynsym = append(tab.dynsym, sym())
		}
		for range r.IntN(50) {
			fdes = append(fdes, ehframe.FDE{PC: addr(), Size: uint64(r.IntN(4) * 8), Instructions: []byte{byte(r.IntN(2) * 0x0e)}})
		}
		if round%2 == 0 {
			slices.SortFunc(fdes, func(a, b ehframe.FDE) int { return int(a.PC>>1) - int(b.PC>>1) })
		}
		tab.fdes = fdes
		want := plainCollect(tab)
		tab.collect([2]*source{symbols(tab.syms, SourceSymtab, false, nil), symbols(tab.dynsym, SourceDynsym, true, nil)}, tab.frames())
		for i := range want {
			others := otherNames(tab, &want[i])
			want[i].Aliased = len(others) > 0
			if got := tab.Aliases(want[i].Addr); !slices.Equal(got, others) {
				t.Fatalf("round %d: aliases of %+v: %q, want %q", round, want[i], got, others)
			}
		}
		if d := cmp.Diff(want, tab.funcs, cmp.AllowUnexported(Func{}), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("round %d:\n%s", round, d)
		}
	}
}
