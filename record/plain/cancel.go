package plain

import "slices"

// System calls that can be cancelled.
//
// Where a thread can be cancelled while it waits in the kernel, musl, and glibc from 2.41 on, make the system call in a
// routine of its own, written by hand. It looks whether the thread has been cancelled, and calls the kernel; and the
// handler of the signal that cancels finds out from the program counter whether it came between the one and the other. So
// nothing of it may be elsewhere: neither the instruction that calls the kernel, nor those that look, which are the
// routine's first. What moves in their place is a call of the routine, which has the number and the arguments as a
// function's.
//
// The routine is known by its instructions, which are the same in both libraries but for how the word is tested.

// routine is one that makes system calls which can be cancelled. It is called with the address of a word, the number of
// the system call, and its six arguments.
type routine struct {
	addr      uint64
	call      uint64 // of the instruction
	cancelled uint32 // bits of the word, any of which says that the thread has been cancelled, and none is made
}

// inRange reports whether the program counter is looked at while a function's first instructions run.
func (f *Finder) inRange(b []byte) bool {
	m, ok := f.m.(syscallMachine)
	if ok {
		_, ok = m.cancellable(b)
	}
	return ok
}

// callers puts the calls of routines in place of the system calls that these make.
func (f *Finder) callers(m syscallMachine, all []Syscall) []Syscall {
	const before = 64 // bytes from where a routine begins to the instruction, at most
	var routines []routine
	for i := range all {
		if s := &all[i]; s.Refusal == AddressTaken {
			for back := uint64(0); back <= before && back <= s.Addr; back++ {
				at := s.Addr - back
				if f.marks.get(at)&called == 0 {
					continue
				}
				b := f.text.From(at)
				lead, _ := f.m.begin(f, b)
				if r, ok := m.cancellable(b[lead:]); ok && at+uint64(lead)+r.call == s.Addr {
					r.addr, r.call = at, s.Addr
					routines = append(routines, r)
					break
				}
			}
		}
	}
	for _, r := range routines {
		if calls := f.callsOf(m, r); len(calls) > 0 {
			all = slices.DeleteFunc(all, func(s Syscall) bool { return s.Addr == r.call })
			all = append(all, calls...)
		}
	}
	return all
}

// callsOf returns the calls of a routine.
func (f *Finder) callsOf(m syscallMachine, r routine) (out []Syscall) {
	text := *f.text
	for i := range f.funcs {
		start := f.funcs[i].Addr
		b := text.Range(start, f.limit(i))
		for at := range b {
			to, n, ok := m.direct(b[at:], start+uint64(at))
			if !ok || to != r.addr {
				continue
			}
			lo, hi := start+uint64(at), start+uint64(at+n)
			_, found := f.index.Find(lo)
			s := Syscall{Addr: lo, Func: i, Number: Unknown, Routine: r.addr, Cancelled: r.cancelled}
			switch {
			case !m.reaches(f, i, b, at):
				s.Refusal = Unreached
			case f.marks.any(lo+1, hi)&(instruction|anyTarget) != 0:
				s.Refusal = JumpInto
			case f.handled(lo, hi):
				s.Refusal = HandlerAround
			case found && f.frameChanges(lo, hi, m.stackPointer()):
				s.Refusal = UnusualUnwind
			default:
				s.Spans = []Span{{lo, hi, hi}}
			}
			out = append(out, s)
		}
	}
	return out
}
