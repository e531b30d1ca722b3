// Package session runs a program with a plan applied to it and writes what the program's runtime records to disk.
//
//	path, err := session.LookPath("prog")
//	plan, file := ...             // made from the file at path
//	res, err := session.Run(ctx, session.Options{
//		Path:    path,
//		Args:    []string{"prog", "arg"},
//		File:    file,            // its os.FileInfo from when the plan was made
//		Dir:     "fentry.data",
//		Prepare: func(pool string) (*patch.Memory, error) { ... },
//	})
//	res.Status                    // how the program ended
//
// # What the program sees
//
// It starts as if the parent of this process had started it: with the same arguments, environment, working directory,
// standard streams and other open files, process group, terminal, limits, signal mask and signal dispositions, and
// with its own path in /proc/self/exe. The Go runtime replaces dispositions and the limit of open files of every Go
// program; Run restores the previous ones (dispositions and mask only if its own executable has a symbol table,
// because no interface reveals them). One difference remains: standard descriptors that were closed are /dev/null.
//
// The program is stopped once, at the end of its execve and before its first instruction. There the memory of the
// plan is mapped, all old bytes are compared, the edits are made, the auxiliary vector is pointed at the added entry
// point and program headers, and the program is resumed. No tracer stays attached.
//
// If ptrace is refused, a patched copy of the program is run instead, from an unnamed file in the program's directory
// or from memory. Its path in /proc/self/exe is then a different one.
//
// A program of another machine runs under an emulator, [Options].Emulator, as a
// patched copy that the emulator opens in place of the program.
//
// # The session
//
// The runtime inside the program writes to chunks of a shared memory pool, which Run keeps open, as file descriptor
// 1000, too, where the runtimes of programs started later look for it. Run writes full chunks to the events file, zeroes
// them and frees them. It returns when the program and all traced processes it left behind have ended. An error
// writing the trace ends the tracing, never the program.
//
// # Security
//
// Every traced process can write to the pool, so its contents are untrusted input. Invalid chunks are dropped and
// counted. What they name is opened as internal/safefile does, the trace is made below the descriptor of a directory
// that belongs to this user, and signals end a session whatever it waits for. SECURITY.md has all that is promised.
package session
