// Package procfs reads what a session needs to know of processes from /proc: how
// they are, when they began, what they map and which signals they ignore.
//
// What stands there is partly the processes' own choice, such as their names, and
// all of it can change while it is read: a process that is gone is an ordinary
// answer, no error.
package procfs
