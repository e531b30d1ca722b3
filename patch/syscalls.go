package patch

import (
	"debug/elf"
	"fmt"
	"iter"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/inject"
	"github.com/fentry-dev/fentry/record"
)

// System calls.
//
// The instruction that calls the kernel moves, with its surroundings, to a place where the runtime is told before and
// after (package amd64). So a window belongs to a system call and not to a function: functions that are not traced have
// them, and a plan can have nothing else. They have no ids and no thunks, as the number of a system call says what it
// is.
//
// A window must not touch the site of a function that is traced, or one that could be: what a plan does with functions
// may be edited. Of the ways to move a system call there is nearly always one that keeps away from them.
//
// A thread that waits in the kernel waits in the copy. So each copy has an entry of its own in the unwind tables, with
// the rows of the original; where that has none, as behind the instruction of clone, there is none.

// Syscall is a system call of the image and what the plan does with it.
type Syscall struct {
	*record.Syscall
	Move record.Move // what is moved; the zero value: nothing is

	copied uint32 // where the copy is, behind layout.syscalls
}

// Moved reports whether the plan records the system call.
func (s *Syscall) Moved() bool { return s.Move.Len > 0 }

// syscallMachine is a machine whose system calls can be moved.
type syscallMachine interface {
	// syscallLen returns how many bytes appendSyscall appends.
	syscallLen(s *Syscall, code []byte) int
	// appendSyscall appends, for address to, what goes on in place of the instructions of a window.
	appendSyscall(dst []byte, s *Syscall, code []byte, to uint64, r enterExit) ([]byte, error)
	// appendFarJump appends 16 bytes that go to an address from anywhere.
	appendFarJump(dst []byte, to uint64) []byte
	// syscallPlace returns where in that the instruction begins that begins at an offset of the window.
	syscallPlace(s *Syscall, code []byte, off int) (int, bool)
}

// chooseSyscalls decides how each system call is moved.
func (p *Plan) chooseSyscalls(found []record.Syscall) {
	_, ok := p.m.(syscallMachine)
	if t := p.Options.Tracer; !ok || len(found) == 0 || t != FunctionGraph && t != Function {
		return
	}
	end, next := uint64(0), 0
	for i := range found {
		s := Syscall{Syscall: &found[i]}
		for next < len(p.Functions) && p.Functions[next].End()+maxMove < s.Addr {
			next++
		}
		if !p.Options.Only.chosen(s.Syscall) {
			continue
		}
		for _, m := range s.Moves {
			if m.Addr >= end && !p.touchesSite(m, next) {
				s.Move, end = m, m.End()
				break
			}
		}
		p.Syscalls = append(p.Syscalls, s)
	}
}

// maxMove is more bytes than a window of a system call has.
const maxMove = 64

// touchesSite reports whether a site of a function from the given one on shares a byte with what is moved.
func (p *Plan) touchesSite(m record.Move, from int) bool {
	for i := from; i < len(p.Functions) && p.Functions[i].Addr < m.End(); i++ {
		fn := &p.Functions[i]
		if fn.Len > 0 && fn.Reason == "" && fn.End() > m.Addr {
			return true
		}
		if slices.ContainsFunc(fn.Calls, func(at uint64) bool { return at < m.End() && at+wordCallLen > m.Addr }) {
			return true
		}
	}
	return false
}

// recordsSyscalls reports whether any system call is recorded.
func (p *Plan) recordsSyscalls() bool {
	return slices.ContainsFunc(p.Syscalls, func(s Syscall) bool { return s.Moved() })
}

// servesLoader reports whether the dynamic loader's system calls come to the runtime of the plan.
func (p *Plan) servesLoader() bool { return p.Options.Syscalls != nil && p.Options.Target == Process }

// syscallCode is the code that a system call's window moves.
func (l *layout) syscallCode(s *Syscall) ([]byte, error) {
	b, err := l.p.file.Bytes(s.Move.Addr, s.Move.Len)
	if err != nil {
		return nil, fmt.Errorf("system call at %#x: %w", s.Addr, err)
	}
	return b[:s.Move.Code], nil
}

// addSyscalls lays out the copies.
func (l *layout) addSyscalls() error {
	m, ok := l.p.m.(syscallMachine)
	if !ok || !l.p.recordsSyscalls() && !l.p.servesLoader() {
		return nil
	}
	if !l.p.Options.Only.All() {
		l.filter = l.addFilter()
	}
	size := 0
	for i := range l.p.Syscalls {
		s := &l.p.Syscalls[i]
		if !s.Moved() {
			continue
		}
		code, err := l.syscallCode(s)
		if err != nil {
			return err
		}
		n := m.syscallLen(s, code)
		if n == 0 {
			return internalf("system call at %#x: it is not where it was", s.Addr)
		}
		s.copied = uint32(size)
		size += n
	}
	if size == 0 {
		return nil // the filter is the loader's
	}
	l.syscalls = l.add(piece{
		name: ".fentry.syscalls", code: true, size: uint64(size), align: 16, owner: nobody,
		write: func(dst []byte) ([]byte, error) { return l.appendSyscalls(dst, m) },
	})
	return nil
}

// addFilter lays out the bitmap of the system calls that are recorded.
func (l *layout) addFilter() uint64 {
	var b []byte
	for _, w := range l.p.Options.Only {
		b = le.AppendUint64(b, w)
	}
	return l.add(piece{name: ".fentry.filter", size: uint64(len(b)), align: 8, owner: nobody, ready: b})
}

// syscallRoutines are the runtime's routines that copies go to, by name.
func (l *layout) syscallRoutines() (enter, some, exit string) {
	if l.p.Options.NoClock {
		return "fentry_order_syscall_enter", "fentry_order_some_syscall_enter", "fentry_order_syscall_exit"
	}
	return "fentry_syscall_enter", "fentry_some_syscall_enter", "fentry_syscall_exit"
}

// appendSyscalls appends all copies.
func (l *layout) appendSyscalls(dst []byte, m syscallMachine) ([]byte, error) {
	var r enterExit
	enter, some, exit := l.syscallRoutines()
	all, err := l.symbol(enter)
	if err != nil {
		return nil, err
	}
	chosen := all // where the number is not known, and only some are recorded
	if !l.p.Options.Only.All() {
		if chosen, err = l.symbol(some); err != nil {
			return nil, err
		}
	}
	if r.exit, err = l.symbol(exit); err != nil {
		return nil, err
	}
	for i := range l.p.Syscalls {
		s := &l.p.Syscalls[i]
		if !s.Moved() {
			continue
		}
		code, err := l.syscallCode(s)
		if err != nil {
			return nil, err
		}
		if r.enter = all; s.Number < 0 {
			r.enter = chosen
		}
		if dst, err = m.appendSyscall(dst, s, code, l.syscalls+uint64(s.copied), r); err != nil {
			return nil, fmt.Errorf("system call at %#x: %w", s.Addr, err)
		}
	}
	return dst, nil
}

// syscallEdits are the windows of system calls.
func (l *layout) syscallEdits() ([]arch.Edit, error) {
	var out []arch.Edit
	for i := range l.p.Syscalls {
		s := &l.p.Syscalls[i]
		if !s.Moved() {
			continue
		}
		old, err := l.p.file.Bytes(s.Move.Addr, s.Move.Len)
		if err != nil {
			return nil, fmt.Errorf("system call at %#x: %w", s.Addr, err)
		}
		at := record.Site{Addr: s.Move.Addr, Len: s.Move.Len}
		b, err := l.p.m.appendSite(nil, &at, route{to: l.syscalls + uint64(s.copied)})
		if err != nil {
			return nil, fmt.Errorf("system call at %#x: %w", s.Addr, err)
		}
		out = append(out, arch.Edit{Addr: s.Move.Addr, Old: slices.Clone(old), New: b, Func: s.Name, Reason: "syscall"})
	}
	return out, nil
}

// syscallFrames yields the unwind entries of the copies. An error is left in err.
func (l *layout) syscallFrames(t *ehframe.Table, err *error) iter.Seq[*ehframe.FDE] {
	return func(yield func(*ehframe.FDE) bool) {
		m, ok := l.p.m.(syscallMachine)
		if !ok || l.syscalls == 0 {
			return
		}
		index := ehframe.NewIndex(t)
		var rows []byte
		for i := range l.p.Syscalls {
			s := &l.p.Syscalls[i]
			if !s.Moved() {
				continue
			}
			d, found := index.Find(s.Move.Addr)
			if !found {
				continue
			}
			var code []byte
			if code, *err = l.syscallCode(s); *err != nil {
				return
			}
			lead := s.Move.Addr - d.PC
			var bad error
			rows, bad = d.AppendMoved(rows[:0], lead+uint64(s.Move.Code), func(at uint64) (uint64, bool) {
				to, ok := m.syscallPlace(s, code, int(max(at, lead)-lead))
				return uint64(to), ok
			})
			if bad != nil {
				*err = fmt.Errorf("system call at %#x: %w", s.Addr, bad)
				return
			}
			d.PC, d.Size, d.LSDA, d.Instructions = l.syscalls+uint64(s.copied), uint64(m.syscallLen(s, code)), 0, rows
			if !yield(&d) {
				return
			}
		}
	}
}

// syscallSymbols appends names of the copies: those of their functions.
func (l *layout) syscallSymbols(out []inject.Symbol) []inject.Symbol {
	m, ok := l.p.m.(syscallMachine)
	if !ok || l.syscalls == 0 || l.p.file.SectionIndex(".symtab") < 0 {
		return out
	}
	for i := range l.p.Syscalls {
		s := &l.p.Syscalls[i]
		if !s.Moved() || s.Name == "" {
			continue
		}
		if code, err := l.syscallCode(s); err == nil {
			out = append(out, inject.Symbol{
				Name: s.Name, Value: l.syscalls + uint64(s.copied), Size: uint64(m.syscallLen(s, code)),
				Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC),
			})
		}
	}
	return out
}
