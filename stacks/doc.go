//go:build linux

// Package stacks says where the threads of a running process are: their call stacks, read from outside.
//
//	p, err := stacks.Open(pid, symbol.Options{})
//	defer p.Close()
//	for _, tid := range p.Threads() {
//		t, err := p.Thread(tid, false)      // t.Frames, innermost first; t.End says why there are no more
//		frames, err := p.Names(t.Frames[0]) // functions and lines, inlined ones first
//	}
//
// Walks follow the unwind tables that the process itself has in memory (package ehframe), so a traced program's
// stack is that of its functions: whatever tracing has added says in these tables where return addresses are.
//
// # Modes
//
// Of a thread that is blocked the kernel tells the stack pointer and the program counter (/proc/PID/task/TID/syscall).
// That is enough for most stacks, and nothing is stopped. A register that is not known becomes known where a frame has
// saved it; a walk that needs one before that ends there ([Partial]). A thread that runs is stopped, for the time that
// it takes to read its registers and a part of its stack, and walked when it goes on again ([Full]).
//
// A stack is never guessed. It says why it ended ([Thread].End).
//
// # Security
//
// Everything that is read of a process can be made by a hostile one: walks, tables, expressions and names are bounded,
// and malformed ones end a walk or are errors.
package stacks
