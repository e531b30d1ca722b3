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
	loaderCode  = 32
)

// NewLoaderCalls returns the system calls of a dynamic loader's image, as [record.Syscalls] has found them; nil if none
// can be moved.
func NewLoaderCalls(f *elfio.File, found []record.Syscall) (*LoaderCalls, error) {
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
		for _, move := range found[i].Moves {
			if move.Addr < end {
				continue
			}
			end = move.End()
			s := loaderCall{Syscall: Syscall{Syscall: &record.Syscall{Addr: found[i].Addr}, Move: move, copied: uint32(c.size)}}
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

// Build returns what is to be at address at, in reach of a loader whose load bias is given, and the changes of the loader
// that lead there. enter and exit are the addresses of the runtime's routines. What taken reports on stays as it is.
func (c *LoaderCalls) Build(at, bias, enter, exit uint64, taken func(lo, hi uint64) bool) ([]byte, []arch.Edit, error) {
	sm := c.m.(syscallMachine)
	code := append(sm.appendFarJump(nil, enter), sm.appendFarJump(nil, exit)...)
	r := enterExit{at + LoaderEnter, at + LoaderExit}
	var edits []arch.Edit
	for i := range c.calls {
		s := c.calls[i].Syscall
		move := s.Move
		move.Addr += bias
		at, to := move.Addr, at+uint64(len(code))
		moved := record.Syscall{Addr: s.Addr + bias}
		s.Syscall, s.Move = &moved, move
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
