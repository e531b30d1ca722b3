package mapped

// Files that change while they are read.
//
// Behind the end of a file that has become shorter there is no memory any more, although the mapping is still there:
// touching it is SIGBUS, and so is a disk that cannot deliver. Anybody who can write to a file can do that at any time,
// and Go's answer is to end the process with a dump. A reader has to say which file it was instead.
//
// SetPanicOnFault makes the Go runtime answer with a panic that has the address, but only on the goroutine that asks
// for it. So the rule is: memory of a mapping is touched below Guard only, which turns such a panic into an error that
// names the file; and where code below Guard starts a goroutine, it does so by [Relay], which hands the panic over to
// who waits for it. Packages parallel and this one are the only ones that do: TestGoroutines (repository root) finds
// every go statement outside of tests and asks for a reason. A panic at an address that is no mapping's is a mistake
// in the program, and stays a panic.
//
// Considered instead: reading files into memory, which is complete without any of this, but costs a copy of programs
// of a gigabyte of which a hundredth is looked at; leases (F_SETLEASE), which only the owner of a file gets; and
// checking the size now and then, which only makes the moment shorter. What is read of a file that is being written is
// anything, as for every reader. That is why a result is an error or made of the bytes that were there, and why bytes
// that were compared once are not read again to be trusted.

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Fault is the error of a file whose mapped contents could not be read.
type Fault struct {
	Path string
	Off  int64 // offset of what was read
	Size int64 // the file's size now, -1 if its path does not lead to it any more
}

func (f *Fault) Error() string {
	if f.Size >= 0 && f.Size <= f.Off {
		return fmt.Sprintf("%s: truncated to %d bytes while it was read", f.Path, f.Size)
	}
	return fmt.Sprintf("%s: offset %#x: cannot be read: truncated while it was read, or an error of the disk", f.Path, f.Off)
}

// A mapping is where a file is in memory.
type mapping struct {
	start, size uintptr // of whole pages
	file        *File
	length      int64 // bytes of the file
	closed      bool
}

// mappings are those that exist, so that an address can be told to be a file's, and the last few that do not any more:
// between a fault and the Guard that is told of it, deferred calls close files. Where no Guard is, nobody is told, and
// closed ones are forgotten: their addresses are free for memory that is no file's.
var mappings struct {
	sync.Mutex
	all    []mapping
	guards int // calls of Guard that have not returned
}

const keptClosed = 16

func register(f *File) {
	page := uintptr(os.Getpagesize())
	m := mapping{
		start: uintptr(unsafe.Pointer(unsafe.SliceData(f.Data))), size: (uintptr(len(f.Data)) + page - 1) &^ (page - 1),
		file: f, length: int64(len(f.Data)),
	}
	mappings.Lock()
	defer mappings.Unlock()
	mappings.all = slices.DeleteFunc(mappings.all, func(o mapping) bool {
		return o.closed && o.start < m.start+m.size && m.start < o.start+o.size
	})
	mappings.all = append(mappings.all, m)
}

func unregister(f *File) {
	mappings.Lock()
	defer mappings.Unlock()
	if mappings.guards == 0 {
		mappings.all = slices.DeleteFunc(mappings.all, func(m mapping) bool { return m.file == f })
		return
	}
	closed, oldest := 0, -1
	for i := range mappings.all {
		m := &mappings.all[i]
		m.closed = m.closed || m.file == f
		if m.closed {
			if closed++; oldest < 0 {
				oldest = i
			}
		}
	}
	if closed > keptClosed {
		mappings.all = slices.Delete(mappings.all, oldest, oldest+1)
	}
}

func enter() {
	mappings.Lock()
	defer mappings.Unlock()
	mappings.guards++
}

func leave() {
	mappings.Lock()
	defer mappings.Unlock()
	if mappings.guards--; mappings.guards == 0 {
		mappings.all = slices.DeleteFunc(mappings.all, func(m mapping) bool { return m.closed })
	}
}

// faultAt returns the fault at an address; nil if it is not in a mapping.
func faultAt(addr uintptr) *Fault {
	mappings.Lock()
	defer mappings.Unlock()
	for i := range mappings.all {
		if m := &mappings.all[i]; addr-m.start < m.size {
			return m.file.fault(int64(addr - m.start))
		}
	}
	return nil
}

// torn returns the fault of a mapped file that has become shorter, nil if there is none.
func torn() *Fault {
	mappings.Lock()
	defer mappings.Unlock()
	for i := range mappings.all {
		m := &mappings.all[i]
		if e := m.file.fault(m.length - 1); e.Size >= 0 && e.Size <= e.Off {
			return e
		}
	}
	return nil
}

func (f *File) fault(off int64) *Fault {
	e := &Fault{Path: f.Path, Off: off, Size: -1}
	if now, err := os.Stat(f.Path); err == nil && os.SameFile(now, f.Info) {
		e.Size = now.Size()
	}
	return e
}

// Named puts a path before an error, unless it is that of a fault, which names its file: it can be another one.
func Named(path string, err error) error {
	var f *Fault
	if errors.As(err, &f) {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// Guard calls do, and returns its error, or a [Fault] if do has touched contents of a mapped file that are not there
// any more. What do was about to do is left half done: who calls Guard must not use what do has changed, except to
// close files. Calls can be nested; the inner one returns the fault then.
func Guard(do func() error) (err error) {
	enter()
	defer leave()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			f := AsFault(r)
			if f == nil {
				panic(r)
			}
			err = f
		}
	}()
	err = do()
	if errors.Is(err, unix.EFAULT) {
		// The kernel has come across it, when it was given the contents to write.
		if f := torn(); f != nil {
			return f
		}
	}
	return err
}

// AsFault returns the fault that a recovered panic stands for; nil: it is something else. Code that recovers from
// panics for reasons of its own passes faults on.
func AsFault(r any) *Fault {
	switch p := r.(type) {
	case *Fault:
		return p
	case interface{ Addr() uintptr }: // runtime/debug.SetPanicOnFault
		return faultAt(p.Addr())
	}
	return nil
}

// A Relay carries faults from goroutines to the one that waits for them. The zero Relay is ready.
type Relay struct{ first atomic.Pointer[Fault] }

// Run calls do on a goroutine that no Guard is around, and keeps the fault it ends with.
func (r *Relay) Run(do func()) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			f := AsFault(p)
			if f == nil {
				panic(p)
			}
			r.first.CompareAndSwap(nil, f)
		}
	}()
	do()
}

// Failed tells whether there was a fault, so that the others need not go on.
func (r *Relay) Failed() bool { return r.first.Load() != nil }

// Raise panics with the fault if there was one. It is called when all goroutines have ended, below a Guard.
func (r *Relay) Raise() {
	if f := r.first.Load(); f != nil {
		panic(f)
	}
}
