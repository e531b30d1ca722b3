package tracee

// Threads of Go programs.
//
// Stacks that Go's runtime makes lie in its heap, where anything can look like an address, and where a panic leaves those of
// faults. Nobody goes back to these. Two kinds of words lead to the middle of a site: where a signal handler goes back to, and
// where a goroutine was stopped, as long as it has not been led to the copy (patch, gopreempted.go).

// goes reports whether it is in a Go program.
func (a *Attachment) goes() bool { return a.images[0].m.Goroutines }

// goesBack reports whether a word of a thread's stack, which is an address in the program, is one of them. Any word can be
// where C code goes back to.
func (a *Attachment) goesBack(t *thread, at, v uint64) bool {
	const pushed = 64 // bytes, and more than who leads it to the copy has pushed in front of it
	if !a.images[0].m.HasGo(v - a.images[0].bias) {
		return true
	}
	if a.images[0].m.Preempts(t.regs.pc()-a.images[0].bias) && at < t.regs.sp()+pushed {
		return true
	}
	return interrupted(&t.Process, at) && onStackOf(&t.Process, at, t.regs.sp())
}

// mostStack bounds how much of a thread's stack is looked at.
func (a *Attachment) mostStack(t *thread) uint64 {
	const (
		heap, heapEnd = 0xc0 << 32, 1 << 40 // where it is tried to be first (runtime, malloc.go); nothing else is mapped there
		handlers      = 64 << 10            // twice the size of their stacks (runtime, os_linux.go)
	)
	if sp := t.regs.sp(); a.goes() && heap <= sp && sp < heapEnd {
		return handlers
	}
	return mostStack
}

// onStackOf tells whether the kernel's frame that has its program counter at an address was made on the stack that sp is on,
// one of those that signal handlers have of their own.
func onStackOf(mem *Process, at, sp uint64) bool {
	b := make([]byte, 24) // struct stack_t
	if mem.ReadAt(b, at-framePC+frameStack) != nil {
		return false
	}
	return sp-le.Uint64(b) < le.Uint64(b[16:])
}
