// Package syscalls knows the system calls of Linux on both machines: their numbers, names and arguments, which memory
// an argument points to, and how strace shows a call.
//
//	c := syscalls.AMD64.Call(257)
//	c.Captures()                          // what to read, and when: a string behind argument 1
//	syscalls.Line(call)                   // openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3
//	syscalls.ParseFilter("%file,!open")   // which calls are meant
//
// It knows nothing about traces or processes: who records gives it numbers and bytes. The tables are two texts, made by
// internal/tables from golang.org/x/sys/unix, what a kernel says of its arguments, and what was written by hand. They
// are parsed when they are first used, so a command that shows no system call does not pay for them.
//
// # Security
//
// Numbers and bytes can be anything: what does not fit is shown as a number or an address. Text comes out quoted, so it
// cannot control a terminal, and memory is linear in what was recorded.
package syscalls

//go:generate go run ./internal/mktables
