package record

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/record/plain"
	"github.com/fentry-dev/fentry/symbol"
)

// Syscall is an instruction of an image that calls the kernel.
type Syscall struct {
	Addr   uint64 // of the instruction
	Func   uint64 // address of its function
	Name   string // of the function, "" if the image has none
	Number int    // of the system call, if the instructions in front of it tell; else -1
	// Moves are the ways to move it with its surroundings, in the order of preference; nil: there is none.
	Moves  []Move
	Reason Reason // why there is none

	// Routine is not 0 where the instruction has to stay, and a call of the routine that it is in, at Addr, moves. Its
	// arguments are the address of a word, the number, and the system call's six arguments. If one of the bits Cancelled
	// of the word is set, it makes none.
	Routine   uint64
	Cancelled uint32

	// Go: it is in assembly of Go's, where all of its system calls are, and which may run on a goroutine's stack. A Go
	// program's other code is C, on a thread's.
	Go bool
}

// Move is a run of bytes that a jump can take the place of, because what is there can be moved.
type Move struct {
	Addr uint64
	Len  int // of the bytes that are free then
	Code int // how many of them are instructions; the others are padding
}

// End is the address behind the bytes.
func (m *Move) End() uint64 { return m.Addr + uint64(m.Len) }

// Syscalls returns the system calls of a linked image, sorted by address. There are none if its machine's cannot be
// moved. symbols may be nil. Errors name the malformed part of the file.
func Syscalls(f *elfio.File, symbols *symbol.Table) ([]Syscall, error) {
	if !plain.Supported(f) {
		return nil, nil
	}
	var goImage *golang.Image
	if golang.Is(f) {
		var refused *golang.Refusal
		var err error
		if goImage, err = golang.Read(f); errors.As(err, &refused) {
			return nil, nil // what its goroutines are is not known
		} else if err != nil {
			return nil, fmt.Errorf("finding system calls: %w", err)
		}
	}
	im, err := load(f, symbols)
	if err != nil {
		return nil, fmt.Errorf("finding system calls: %w", err)
	}
	if goImage != nil {
		im.funcs.list = goFuncs(im.funcs.list, goImage)
	}
	finder, err := plain.NewSyscalls(f, im.code, im.funcs.list, im.addresses())
	if err != nil {
		return nil, fmt.Errorf("finding system calls: %w", err)
	}
	called, others := finder.Unlisted()
	if len(called)+len(others) > 0 {
		im.funcs.list = withUnlisted(im.funcs.list, called, others)
		if finder, err = plain.NewSyscalls(f, im.code, im.funcs.list, im.addresses()); err != nil {
			return nil, fmt.Errorf("finding system calls: %w", err)
		}
	}
	var out []Syscall
	for _, c := range finder.Syscalls() {
		fn := &im.funcs.list[c.Func]
		s := Syscall{Addr: c.Addr, Func: fn.Addr, Name: fn.Name, Number: c.Number, Reason: Reason(c.Refusal),
			Routine: c.Routine, Cancelled: c.Cancelled,
			Go: goImage.Func(fn.Addr).Assembly()}
		if _, ok := slices.BinarySearch(others, fn.Addr); ok { // what begins there may be no instruction
			s.Reason, c.Spans = Reason(plain.Unreached), nil
		}
		for _, p := range c.Spans {
			s.Moves = append(s.Moves, Move{p.Lo, int(p.Hi - p.Lo), int(p.Moved - p.Lo)})
		}
		out = append(out, s)
	}
	return out, nil
}

// withUnlisted adds functions that nothing lists: those that are called, and others that may be some.
func withUnlisted(list []symbol.Func, called, others []uint64) []symbol.Func {
	all := slices.Clone(list)
	for _, addr := range called {
		all = append(all, symbol.Func{Addr: addr, Source: SourceCalls})
	}
	for _, addr := range others {
		all = append(all, symbol.Func{Addr: addr, Source: SourceReferences})
	}
	slices.SortStableFunc(all, func(a, b symbol.Func) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}

// IsGo reports whether Go has linked an image.
func IsGo(f *elfio.File) bool { return golang.Is(f) }

// goFuncs are a program's functions, Go's as its own table has them, which stripped programs have, too.
func goFuncs(list []symbol.Func, im *golang.Image) []symbol.Func {
	all := make([]symbol.Func, 0, len(im.Funcs)+len(list))
	for i := range im.Funcs {
		f := &im.Funcs[i]
		all = append(all, symbol.Func{Addr: f.Entry, Size: f.Next - f.Entry, Name: golang.PrintedName(f.Name)})
	}
	all = append(all, list...)
	slices.SortStableFunc(all, func(a, b symbol.Func) int { return cmp.Compare(a.Addr, b.Addr) })
	return slices.CompactFunc(all, func(a, b symbol.Func) bool { return a.Addr == b.Addr })
}
