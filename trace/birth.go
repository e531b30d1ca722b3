package trace

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/fentry-dev/fentry/names"
)

// How goroutines were made. The runtime function that makes them says so (record GOROUTINE), by addresses of code, most of
// which no symbol file names: only functions that are traced are there. So names come from the program itself, if it
// is there yet, and else from the symbol file.

// A Birth says how a goroutine was made.
type Birth struct {
	Time     int64  // ns since the trace's start
	Parent   uint64 // number of the goroutine that did it; 0: none did
	Function string // the function that the goroutine began with
	By       string // the function with the go statement
}

// made is what the trace says of it.
type made struct {
	counter          uint64
	parent           uint64
	start, statement uint64 // addresses as loaded
}

// Birth returns how a goroutine was made. ok is false if the task is none, or the trace does not tell: it was made before.
func (t *Trace) Birth(k *Task) (b Birth, ok bool) {
	if k.made == nil {
		return b, false
	}
	return Birth{
		Time: t.Clock.Time(k.made.counter), Parent: k.made.parent,
		Function: t.codeName(k.Image, k.made.start), By: t.codeName(k.Image, k.made.statement-1), // behind the call
	}, true
}

// code are the functions of a Go image, by address.
type code struct {
	once  sync.Once
	funcs []names.Func
}

// codeName names the function that has an address, as loaded.
func (t *Trace) codeName(image int, addr uint64) string {
	im := &t.Images[image]
	addr -= im.Bias
	c := &t.codes[image]
	c.once.Do(func() {
		var err error
		if c.funcs, err = names.GoFunctions(im.file()); err != nil {
			c.funcs = slices.Collect(t.FunctionsOf(image))
			slices.SortFunc(c.funcs, func(a, b names.Func) int { return cmp.Compare(a.Addr, b.Addr) })
		}
	})
	i := sort.Search(len(c.funcs), func(i int) bool { return c.funcs[i].Addr > addr })
	if i == 0 || addr-c.funcs[i-1].Addr >= max(c.funcs[i-1].Size, 1) {
		return fmt.Sprintf("%#x", addr)
	}
	return c.funcs[i-1].Display()
}
