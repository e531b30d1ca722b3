package patch

import (
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
)

// System calls of the dynamic loader.
//
// When a program is stopped at exec, the kernel has mapped its dynamic loader too, and nothing of that has run. So its
// system calls are moved there, as a program's are; of musl that is the whole C library. Nothing else is put into the
// loader: the copies go to the runtime in the program, which is farther away than a jump reaches, by two words behind
// them. They have no unwind entries, as debuggers know the loader by its file.

// LoaderCalls are the system calls of a dynamic loader that can be moved.
type LoaderCalls struct {
	m     machine
	calls []loaderCall
	size  int // of all copies
}

type loaderCall struct {
	Syscall
	old []byte
}

// Offsets of the ways to the runtime's routines, at the beginning of what is added, each a jump through the word behind
// it.
const (
	LoaderEnter = 0
	LoaderExit  = 16
	loaderSome  = 32
	loaderCode  = 48
)

// NewLoaderCalls returns the system calls of a dynamic loader's image, as [record.Syscalls] has found them; nil if none
// can be moved.
func NewLoaderCalls(f *elfio.File, found []record.Syscall, only SyscallSet) (*LoaderCalls, error) {
	m, err := machineFor(f)
	if err != nil {
		return nil, err
	}
	sm, ok := m.(syscallMachine)
	if !ok {
		return nil, nil
	}
	c, end := &LoaderCalls{m: m}, uint64(0)
	for i := range found {
		if !only.chosen(&found[i]) {
			continue
		}
		for _, move := range found[i].Moves {
			if move.Addr < end {
				continue
			}
			end = move.End()
			call := record.Syscall{
				Addr: found[i].Addr, Number: found[i].Number, Routine: found[i].Routine, Cancelled: found[i].Cancelled,
			}
			s := loaderCall{Syscall: Syscall{Syscall: &call, Move: move}}
			old, err := f.Bytes(move.Addr, move.Len)
			if err != nil {
				return nil, fmt.Errorf("system call at %#x: %w", s.Addr, err)
			}
			s.old = append(s.old, old...)
			n := sm.syscallLen(&s.Syscall, s.old[:move.Code])
			if n == 0 {
				return nil, internalf("system call at %#x: it is not where it was", s.Addr)
			}
			c.calls, c.size = append(c.calls, s), c.size+n
			break
		}
	}
	if len(c.calls) == 0 {
		return nil, nil
	}
	return c, nil
}

// Size returns how many bytes [LoaderCalls.Build] makes.
func (c *LoaderCalls) Size() uint64 { return loaderCode + uint64(c.size) }

// Build returns what is to be at address at, in reach of a loader whose load bias is given, and the changes of the
// loader that lead there. m says what the runtime's routines are, in an image with the load bias home. What taken
// reports on stays as it is.
func (c *LoaderCalls) Build(at, bias uint64, m *Memory, home uint64, taken func(lo, hi uint64) bool) ([]byte,
	[]arch.Edit, error) {
	sm := c.m.(syscallMachine)
	var code []byte
	for _, routine := range []uint64{m.SyscallEnter, m.SyscallExit, m.SyscallSome} {
		code = sm.appendFarJump(code, home+routine)
	}
	page := at
	var edits []arch.Edit
	for i := range c.calls {
		s := c.calls[i].Syscall
		move := s.Move
		move.Addr += bias
		at, to := move.Addr, page+uint64(len(code))
		moved := *s.Syscall
		if moved.Addr += bias; moved.Routine != 0 {
			moved.Routine += bias
		}
		s.Syscall, s.Move = &moved, move
		r := enterExit{page + LoaderEnter, page + LoaderExit}
		if s.Number < 0 {
			r.enter = page + loaderSome
		}
		var err error
		if code, err = sm.appendSyscall(code, &s, c.calls[i].old[:move.Code], to, r); err != nil {
			return nil, nil, fmt.Errorf("system call at %#x of the dynamic loader: %w", s.Addr, err)
		}
		if taken(at, move.End()) {
			continue // its copy is not used
		}
		site := record.Site{Addr: at, Len: move.Len}
		b, err := c.m.appendSite(nil, &site, route{to: to})
		if err != nil {
			return nil, nil, fmt.Errorf("system call at %#x of the dynamic loader: %w", s.Addr, err)
		}
		edits = append(edits, arch.Edit{Addr: at, Old: c.calls[i].old, New: b, Reason: "syscall"})
	}
	return code, edits, nil
}
