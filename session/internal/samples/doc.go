// Package samples takes the stacks of a process's threads, and of all that it starts, each time that they have run for
// some time, from outside: the kernel copies registers and the newest part of a stack (package perf), and package stacks
// walks it. It knows nothing about functions, nor about the pool.
//
//	r, err := samples.Follow(pid, samples.Options{Every: time.Millisecond})
//	chunks := r.Take(func(_, _ uint32) bool { return true })  // for the trace
//	stats := r.Stop()
//
// # Security
//
// What the threads have on their stacks is theirs to choose. Records are as long as the kernel says and walks are bounded,
// as those of package stacks.
package samples
