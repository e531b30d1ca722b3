// Package session runs a program with a plan applied to it and drains what its
// runtime records to disk.
//
//	path, err := session.LookPath("prog")
//	plan, file := ...             // made from the file at path
//	res, err := session.Run(ctx, session.Options{
//		Path:    path,
//		Args:    []string{"prog", "arg"},
//		File:    file,            // its os.FileInfo when the plan was made
//		Dir:     "fentry.data",
//		Prepare: func(pool string) (*patch.Memory, error) { ... },
//	})
//	res.Status                    // how the program ended
//
// # What the program sees
//
// It starts as it would have started from the process that started this one:
// the same arguments, environment, working directory, standard streams and other
// open files, process group, terminal, limits, signal mask and signal
// dispositions, and its own path in /proc/self/exe. The Go runtime replaces
// dispositions and the limit of open files of every Go program; Run puts back
// what was there before (dispositions and mask only if the executable it runs in
// has a symbol table, because no interface tells them). One thing is lost:
// standard descriptors that were closed are /dev/null.
//
// The program is stopped once, at the end of its execve and before its first
// instruction. There the memory of the plan is mapped, the edits are made after
// all old bytes were compared, the auxiliary vector is pointed at the added
// entry point and program headers, and the program is let go. No tracer stays
// attached.
//
// Where ptrace is refused, a patched copy of the program is run instead: from an
// unnamed file in the program's directory, or from memory. Its path in
// /proc/self/exe is then another one.
//
// A program of another machine runs under an emulator, [Options].Emulator, as a
// patched copy that the emulator opens in place of the program.
//
// # The session
//
// The runtime inside the program writes to chunks of a shared memory pool that
// Run keeps open as descriptor 1000, where runtimes of programs started later
// look for it. Run writes full chunks to the events file, zeroes them and gives
// them back. It returns when the program and all traced processes it left behind
// have ended. An error writing the trace ends the tracing, never the program.
//
// # Security
//
// The pool can be written by every traced process, so everything in it is
// checked as any input from outside. Chunks that make no sense are dropped and
// counted.
package session
