package record

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/symbol"
)

// TestFunctionsRemember asks in every order: what is remembered must not change the answers.
func TestFunctionsRemember(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var fs functions
	for a := uint64(100); a < 400; a += 1 + r.Uint64N(5) {
		fs.list = append(fs.list, symbol.Func{Addr: a})
	}
	for range 100_000 {
		addr := 95 + r.Uint64N(310)
		if r.IntN(2) == 0 && fs.last < len(fs.list) {
			addr = fs.list[fs.last].Addr + r.Uint64N(10)
		}
		want := -1
		for i := range fs.list {
			if fs.list[i].Addr <= addr {
				want = i
			}
		}
		if got := fs.containing(addr); got != want {
			t.Fatalf("containing(%d) = %d, want %d", addr, got, want)
		}
		hi := addr + r.Uint64N(6)
		i := slices.IndexFunc(fs.list, func(f symbol.Func) bool { return f.Addr >= addr })
		got, ok := fs.first(addr, hi)
		if wantOK := i >= 0 && fs.list[i].Addr <= hi; ok != wantOK || ok && got != fs.list[i].Addr {
			t.Fatalf("first(%d, %d) = %d, %v", addr, hi, got, ok)
		}
	}
}

func TestSortSites(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for runs := 0; runs < 5; runs++ {
		var sites []Site
		for k := range runs {
			for a := uint64(0); a < 50; a += r.Uint64N(4) {
				sites = append(sites, Site{Func: a, Addr: a + r.Uint64N(2), Len: k})
			}
		}
		want := slices.Clone(sites)
		slices.SortStableFunc(want, compareSites)
		got := sites
		sortSites(got)
		for i := range want {
			if got[i].Func != want[i].Func || got[i].Addr != want[i].Addr || got[i].Len != want[i].Len {
				t.Fatalf("%d runs: site %d is %+v, want %+v", runs, i, got[i], want[i])
			}
		}
	}
}

func TestWords(t *testing.T) {
	w := words{list: []word{{8, 1}, {16, 2}, {40, 3}}}
	for _, c := range []struct {
		addr, value uint64
		ok          bool
	}{{8, 1, true}, {16, 2, true}, {24, 0, false}, {40, 3, true}, {48, 0, false}, {8, 1, true}, {0, 0, false}} {
		if v, ok := w.at(c.addr); v != c.value || ok != c.ok {
			t.Errorf("at(%d) = %d, %v", c.addr, v, ok)
		}
	}
}
