package patch

import (
	"cmp"
	"debug/elf"
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
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
// may be edited. Nor must it touch the padding that a short jump in such a site goes to. Of the ways to move a system call
// there is nearly always one that keeps away from them.
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
	// syscallRows appends the call frame instructions of that, with the rows that an entry has for the window.
	syscallRows(dst []byte, d *ehframe.FDE, s *Syscall, code []byte) ([]byte, error)
	// syscallReaches reports whether a jump gets from a window to an address, and back.
	syscallReaches(from, to uint64) bool
}

// chooseSyscalls decides how each system call is moved.
func (p *Plan) chooseSyscalls(found []record.Syscall) {
	_, ok := p.m.(syscallMachine)
	if t := p.Options.Tracer; !ok || len(found) == 0 || t != FunctionGraph && t != Function {
		return
	}
	end, next, only := uint64(0), 0, p.onlySyscalls()
	vias := p.vias()
	for i := range found {
		s := Syscall{Syscall: &found[i]}
		for next < len(p.Functions) && p.Functions[next].End()+maxMove < s.Addr {
			next++
		}
		if !only.chosen(s.Syscall) || p.Options.Running && s.Routine != 0 {
			continue // what a copied call has pushed would stay on the stacks of threads that wait
		}
		if s.Go && p.golang == nil {
			continue // what its goroutines are is not said to the runtime
		}
		for _, m := range s.Moves {
			if p.Options.Running && p.inTwoPages(m.Addr, m.Len) {
				continue
			}
			if m.Addr >= end && !p.touchesSite(m, next) && !touchesVia(m, vias) {
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

// vias are the places of jumps to thunks that are not in their functions' sites, sorted.
func (p *Plan) vias() (at []uint64) {
	for i := range p.Functions {
		if fn := &p.Functions[i]; fn.Via != 0 && fn.Reason == "" {
			at = append(at, fn.Via)
		}
	}
	slices.Sort(at)
	return at
}

// touchesVia reports whether one of such jumps shares a byte with what is moved.
func touchesVia(m record.Move, vias []uint64) bool {
	i := sort.Search(len(vias), func(i int) bool { return vias[i]+amd64.JumpLen > m.Addr })
	return i < len(vias) && vias[i] < m.End()
}

// onlySyscalls is the set of those that are recorded.
func (p *Plan) onlySyscalls() SyscallSet { return p.Options.Only.Of(p.file.Header.Machine) }

// stacks is the bitmap of those at which the stack is walked.
func (p *Plan) stacks() (b [SyscallBytes]byte) {
	for i, w := range p.Options.StackAt.Of(p.file.Header.Machine) {
		le.PutUint64(b[8*i:], w)
	}
	return b
}

// executes reports whether Go's own code executes programs by a system call: it makes all that its packages ask for by one
// instruction.
func executes(s *record.Syscall) bool {
	return s.Go && s.Number < 0 && strings.HasSuffix(s.Name, ".Syscall6")
}

// tellsExecs reports whether the recorder is told what a Go program is about to execute.
func (p *Plan) tellsExecs() bool {
	return p.Options.Execs != nil && p.golang != nil && slices.ContainsFunc(p.Syscalls, func(s Syscall) bool { return s.Moved() && executes(s.Syscall) })
}

// onlyExecs reports whether system calls move for that alone.
func (p *Plan) onlyExecs() bool { return p.Options.Syscalls == nil }

// recordsSyscalls reports whether any system call is recorded.
func (p *Plan) recordsSyscalls() bool { return !p.onlyExecs() && p.movesSyscalls() }

// movesSyscalls reports whether any system call moves.
func (p *Plan) movesSyscalls() bool {
	return slices.ContainsFunc(p.Syscalls, func(s Syscall) bool { return s.Moved() })
}

// servesLoader reports whether the dynamic loader's system calls come to the runtime of the plan.
func (p *Plan) servesLoader() bool { return p.Options.Syscalls != nil && p.Options.Target == Process }

// movedSyscalls yields the system calls that move, each with the bytes of its window, of which the first s.Move.Code are
// instructions. An error is left in err.
func (l *layout) movedSyscalls(err *error) iter.Seq2[*Syscall, []byte] {
	return func(yield func(*Syscall, []byte) bool) {
		for i := range l.p.Syscalls {
			s := &l.p.Syscalls[i]
			if !s.Moved() {
				continue
			}
			var b []byte
			if b, *err = l.p.file.Bytes(s.Move.Addr, s.Move.Len); *err == nil && !yield(s, b) {
				return
			}
			if *err != nil {
				*err = fmt.Errorf("system call at %#x: %w", s.Addr, *err)
				return
			}
		}
	}
}

// syscallCopies yields them in the order of their copies: those of Go's code, which are a part of its module, are the last.
func (l *layout) syscallCopies(err *error) iter.Seq2[*Syscall, []byte] {
	return func(yield func(*Syscall, []byte) bool) {
		for _, goCode := range [...]bool{false, true} {
			for s, b := range l.movedSyscalls(err) {
				if s.Go == goCode && !yield(s, b) {
					return
				}
			}
		}
	}
}

// syscallAt is where the copy of a system call is.
func (l *layout) syscallAt(s *Syscall) uint64 { return l.syscalls + uint64(s.copied) }

// addSyscalls lays out the copies.
func (l *layout) addSyscalls() (err error) {
	m, ok := l.p.m.(syscallMachine)
	if !ok || !l.p.movesSyscalls() && !l.p.servesLoader() {
		return nil
	}
	if only := l.p.onlySyscalls(); l.p.onlyExecs() {
		l.filter = l.addFilter(SyscallSet{}) // none is recorded
	} else if !only.All() {
		l.filter = l.addFilter(only)
	}
	size, at, goCode := 0, l.end(), false
	for s, b := range l.syscallCopies(&err) {
		n := m.syscallLen(s, b[:s.Move.Code])
		if n == 0 {
			err = internalf("it is not where it was")
			continue
		}
		far := at + uint64(size+n) + maxAlign
		if !m.syscallReaches(s.Move.Addr, far) || s.Routine != 0 && !m.syscallReaches(s.Routine, far) {
			s.Move = record.Move{}
			continue
		}
		s.copied = uint32(size)
		if size += n; s.Go {
			size += len(l.syscallFill()) // addresses of calls are those behind them
			goCode = true
		}
	}
	if err != nil || size == 0 {
		return err // the filter is the loader's
	}
	l.syscallsSize = size
	l.syscalls = l.add(piece{
		name: ".fentry.syscalls", code: true, size: uint64(size), align: 16, owner: nobody,
		write: func(dst []byte) ([]byte, error) { return l.appendSyscalls(dst, m) },
	})
	if g, ok := l.p.m.(goMachine); ok && goCode {
		enter, some, exit := l.syscallRoutines(true)
		for _, name := range [...]string{enter, some, exit} {
			l.goVeneers[name] = g.placeVeneer(l, name)
		}
	}
	return nil
}

// syscallFill is behind each copy of a system call of Go's code.
func (l *layout) syscallFill() []byte {
	if g, ok := l.p.m.(goMachine); ok {
		return g.goFill()
	}
	return nil
}

// addFilter lays out the bitmap of the system calls that are recorded.
func (l *layout) addFilter(only SyscallSet) uint64 {
	var b []byte
	for _, w := range only {
		b = le.AppendUint64(b, w)
	}
	return l.add(piece{name: ".fentry.filter", size: uint64(len(b)), align: 8, owner: nobody, ready: b})
}

// syscallRoutines are the runtime's routines that copies go to, by name; goCode: those of code that may run on a goroutine's
// stack.
func (l *layout) syscallRoutines(goCode bool) (enter, some, exit string) {
	if goCode {
		return "fentry_go_syscall_enter", "fentry_go_some_syscall_enter", "fentry_go_syscall_exit"
	}
	if l.p.Options.NoClock {
		return "fentry_order_syscall_enter", "fentry_order_some_syscall_enter", "fentry_order_syscall_exit"
	}
	return "fentry_syscall_enter", "fentry_some_syscall_enter", "fentry_syscall_exit"
}

// appendSyscalls appends all copies.
func (l *layout) appendSyscalls(dst []byte, m syscallMachine) ([]byte, error) {
	only := l.p.onlySyscalls()
	var err error
	for s, b := range l.syscallCopies(&err) {
		enter, some, exit := l.syscallRoutines(s.Go)
		if s.Number < 0 && (l.p.onlyExecs() || !only.All()) {
			enter = some
		}
		routine := l.symbol
		if s.Go {
			routine = l.goRoutine
		}
		var r enterExit
		if r.enter, err = routine(enter); err != nil {
			continue
		}
		if r.exit, err = routine(exit); err != nil {
			continue
		}
		if dst, err = m.appendSyscall(dst, s, b[:s.Move.Code], l.syscallAt(s), r); s.Go {
			dst = append(dst, l.syscallFill()...)
		}
	}
	return dst, err
}

// syscallEdits are the windows of system calls.
func (l *layout) syscallEdits() (out []arch.Edit, err error) {
	for s, old := range l.movedSyscalls(&err) {
		at := record.Site{Addr: s.Move.Addr, Len: s.Move.Len}
		var b []byte
		if b, err = l.p.m.appendSite(nil, &at, route{to: l.syscallAt(s)}); err != nil {
			continue
		}
		out = append(out, arch.Edit{Addr: s.Move.Addr, Old: slices.Clone(old), New: b, Func: s.Name, Reason: "syscall"})
	}
	return out, err
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
		for s, b := range l.movedSyscalls(err) {
			d, found := index.Find(s.Move.Addr)
			if !found {
				continue
			}
			code := b[:s.Move.Code]
			if rows, *err = m.syscallRows(rows[:0], &d, s, code); *err != nil {
				continue
			}
			d.PC, d.Size, d.LSDA, d.Instructions = l.syscallAt(s), uint64(m.syscallLen(s, code)), 0, rows
			if !yield(&d) {
				return
			}
		}
	}
}

// appendRow appends the call frame instructions that describe, from its first byte on, a copy of what is at an address, and
// returns the row that they make.
func appendRow(dst []byte, d *ehframe.FDE, addr uint64) ([]byte, ehframe.Row, error) {
	at := addr - d.PC
	rows, err := d.AppendRows(nil)
	if err != nil {
		return dst, ehframe.Row{}, err
	}
	row := rows[0]
	for _, r := range rows {
		if r.At <= at {
			row = r
		}
	}
	dst, err = d.AppendMoved(dst, at, func(uint64) (uint64, bool) { return 0, true })
	return dst, row, err
}

// syscallSymbols appends names of the copies: those of their functions.
func (l *layout) syscallSymbols(out []inject.Symbol) []inject.Symbol {
	m, ok := l.p.m.(syscallMachine)
	if !ok || l.syscalls == 0 || l.p.file.SectionIndex(".symtab") < 0 {
		return out
	}
	var err error // the copies have been made of the same bytes
	for s, b := range l.movedSyscalls(&err) {
		if s.Name == "" {
			continue
		}
		out = append(out, inject.Symbol{
			Name: s.Name, Value: l.syscallAt(s), Size: uint64(m.syscallLen(s, b[:s.Move.Code])),
			Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC),
		})
	}
	return out
}

// inSyscall returns where a thread goes on that is in the middle of a window of system calls: the same instruction of the
// copy, behind the call where one that is not recorded ends. It returns false if that is not known.
func (l *layout) inSyscall(addr uint64) (uint64, bool) {
	m, ok := l.p.m.(waiter)
	i := sort.Search(len(l.p.Syscalls), func(i int) bool { return l.p.Syscalls[i].Addr > addr-maxMove })
	for ; ok && i < len(l.p.Syscalls) && l.p.Syscalls[i].Addr < addr+maxMove; i++ {
		s := &l.p.Syscalls[i]
		if !s.Moved() || addr <= s.Move.Addr || addr >= s.Move.End() {
			continue
		}
		code, err := l.p.file.Bytes(s.Move.Addr, s.Move.Code)
		if err != nil {
			return 0, false
		}
		to, ok := m.syscallPlace(s, code, int(addr-s.Move.Addr))
		return l.syscallAt(s) + uint64(to), ok
	}
	return 0, false
}

// waits are the places of copies in which a thread is that is in the kernel, or about to be.
func (l *layout) waits() (all []Wait) {
	m, ok := l.p.m.(waiter)
	for i := range l.p.Syscalls {
		s := &l.p.Syscalls[i]
		if !ok || !s.Moved() {
			continue
		}
		code, err := l.p.file.Bytes(s.Move.Addr, s.Move.Code)
		if err != nil {
			continue
		}
		for off := range m.syscallLen(s, code) + 1 {
			if behind, ok := m.syscallWaits(s, code, off); ok {
				all = append(all, Wait{l.syscalls + uint64(s.copied) + uint64(off), s.Addr + uint64(behind)})
			}
		}
	}
	slices.SortFunc(all, func(a, b Wait) int { return cmp.Compare(a.At, b.At) })
	return all
}

// waiter is a machine on which threads that wait in a system call can be moved to the copy, and back.
type waiter interface {
	syscallMachine
	// syscallPlace returns where in the copy the instruction is that begins at an offset of the window.
	syscallPlace(s *Syscall, code []byte, off int) (int, bool)
	// syscallWaits tells whether an offset of the copy is that of a call of the kernel, or behind one, and how far behind.
	syscallWaits(s *Syscall, code []byte, off int) (behind int, ok bool)
}
