package golang

import (
	"debug/elf"
	"errors"
	"fmt"
	"sync"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/moves"
)

// checkCode holds all functions that Go has compiled against what is relied on.
func (im *Image) checkCode() error {
	var deferreturn uint64
	for i := range im.Funcs {
		if im.Funcs[i].Name == "runtime.deferreturn" {
			deferreturn = im.Funcs[i].Entry
		}
	}
	static := im.f.ProgIndex(elf.PT_INTERP) < 0 && !im.HasC()
	var mu sync.Mutex
	var first error
	const perTask = 256
	parallel.Ranges(len(im.Funcs), perTask, func(from, to int) {
		for i := from; i < to; i++ {
			if err := im.checkFunc(&im.Funcs[i], deferreturn, static); err != nil {
				mu.Lock()
				if first == nil {
					first = fmt.Errorf("%s %w", im.Funcs[i].Name, err)
				}
				mu.Unlock()
			}
		}
	})
	return first
}

func (im *Image) checkFunc(f *Func, deferreturn uint64, static bool) error {
	if static && f.Compiled() {
		l := im.list(f)
		for i := range l.ins {
			if disp, fixed, ok := threadLocal(l.ins[i], l.raw(i)); ok && (!fixed || disp != tlsSlot) {
				return errors.New("uses other thread-local memory")
			}
		}
	}
	if f.isAsm() || !f.Compiled() {
		return nil
	}
	b, r := im.body(f)
	if r != "" {
		return nil // it is left alone
	}
	after := f.DeferReturn()
	for i := range b.Ins {
		x := &b.Ins[i]
		if x.Op == amd64.Ret && x.SP != 0 {
			return errors.New("returns with something on its stack")
		}
		if x.PC == after {
			if x.Op != amd64.Call || x.Target(x.PC) != deferreturn {
				return errors.New("does not go on with deferred calls where its record says")
			}
			after = 0
		}
	}
	if after != 0 {
		return errors.New("goes on with deferred calls where it has no instruction")
	}
	return im.checkScratch(b)
}

// scratch are the registers that recording changes: r12, r13, r15.
const scratch = 1<<12 | 1<<13 | 1<<15

// checkScratch returns an error if one of them is read at the function's beginning, or behind a call of what Go has compiled,
// before it is written.
func (im *Image) checkScratch(b *body) error {
	if b.ReadsScratch(func(x *moves.Instruction, unknown uint16) uint16 {
		if x.Op == amd64.Call && im.Func(x.Target(x.PC)).Assembly() { // such as the collector's barriers, which keep them
			return unknown
		}
		return scratch
	}) {
		return errors.New("gets something in a register that recording needs")
	}
	return nil
}
