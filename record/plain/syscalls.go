package plain

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// System calls.
//
// The instruction that calls the kernel has two bytes, and a jump takes five. So it moves, with instructions in front
// of it or behind it, as a function's first ones do, and by the same rules: nothing goes into the middle of what a jump
// takes the place of. More than that is asked for. Bytes that look like the instruction are in every large program, in
// operands and among data, and the sweep takes some of them for it; so it has to be reached from its function's first
// byte, along the ways that control goes, without one byte that cannot be decoded. And some code cares where it is: a
// thread that is cancelled while a signal handler finds its program counter between two labels (musl, glibc 2.41), or
// the code that returns from handlers, which unwinders know by its bytes. What such code is, is recognised by its
// labels, whose addresses something must have.
//
// There are several ways to choose a window. The first one here has the instruction itself at its beginning, because
// it keeps away from functions' entries, which have windows of their own.

// Refusals of system calls.
const (
	Unreached     Refusal = "not-reached"
	AddressTaken  Refusal = "address-taken"
	SignalReturn  Refusal = "signal-return"
	StackGone     Refusal = "stack-gone"
	HandlerAround Refusal = "exception-handler"

	NoThreadPointer Refusal = "no-thread-pointer"
)

// Unknown is the number of a system call that is not known at its site.
const Unknown = -1

// Syscall is an instruction that calls the kernel, or a call of a routine that does, which itself has to stay (cancel.go).
type Syscall struct {
	Addr    uint64
	Func    int    // index of its function
	Number  int    // Unknown, if it is known only when it is made
	Spans   []Span // what can be moved, in the order of preference; nil: nothing
	Refusal Refusal

	Routine   uint64 // what is called; 0: the kernel
	Cancelled uint32 // bits of the word at its first argument: if one is set, it does not call the kernel
}

// Span is what moves for a system call: whole instructions, the system call among them, and padding behind them.
type Span struct {
	Lo, Hi uint64 // bytes to be overwritten
	Moved  uint64 // where the instructions end and padding begins
}

// Syscalls returns all system calls of an image, sorted by address, each once. There are none if the image's machine is
// not supported.
func (f *Finder) Syscalls() []Syscall {
	s, ok := f.m.(syscallMachine)
	if !ok || !f.decoded {
		return nil
	}
	found := make([][]Syscall, len(f.funcs))
	parallel.Ranges(len(f.funcs), perTask, func(from, to int) {
		text := *f.text
		for i := from; i < to; i++ {
			if b := text.Range(f.funcs[i].Addr, f.limit(i)); s.mayCall(b) {
				found[i] = s.syscalls(f, i, b)
			}
		}
	})
	all := f.callers(s, slices.Concat(found...))
	slices.SortStableFunc(all, func(a, b Syscall) int { return cmp.Compare(a.Addr, b.Addr) })
	return slices.CompactFunc(all, func(a, b Syscall) bool { return a.Addr == b.Addr })
}

// syscallMachine finds system calls in functions.
type syscallMachine interface {
	// mayCall tells quickly whether code can have any.
	mayCall(b []byte) bool
	// syscalls finds those of function i, whose code is b.
	syscalls(f *Finder, i int, b []byte) []Syscall

	// cancellable reports whether code that begins with b is a routine whose calls move in its place (cancel.go). Addresses
	// in r are offsets then.
	cancellable(b []byte) (r routine, ok bool)
	// direct decodes a direct call at an address, of n bytes.
	direct(b []byte, at uint64) (to uint64, n int, ok bool)
	// reaches reports whether control comes to an offset of function i, whose code is b.
	reaches(f *Finder, i int, b []byte, at int) bool
	// stackPointer is its DWARF number.
	stackPointer() int
}

// handled reports whether an exception that passes code in [lo, hi) has a handler in its function, or must not pass.
// The copy of a window has no language-specific data.
func (f *Finder) handled(lo, hi uint64) bool {
	d, ok := f.index.Find(lo)
	if !ok || d.LSDA == 0 {
		return false
	}
	calls, _, err := d.AppendCallSites(f.file, nil, len(f.file.Raw()))
	if err != nil {
		return true
	}
	return slices.ContainsFunc(calls, func(c ehframe.CallSite) bool { return c.Lo < hi && lo < c.Hi && c.Pad != 0 })
}

// frameChanges reports whether what unwinders know of the frame at an instruction up to end cannot be said of its copy:
// it is not known, or is another behind the instruction. sp is the stack pointer's number.
func (f *Finder) frameChanges(at, end uint64, sp int) bool {
	var fr frames
	if fr.open(f.index, at); !fr.found {
		return true
	}
	row, known := fr.at(at)
	if !known || row.Reg < 0 || row.Reg == sp && row.Off < 0 {
		return true
	}
	behind, known := fr.at(end)
	return known && fr.fde.PC+behind.At > at
}
