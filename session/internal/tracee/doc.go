// Package tracee changes a process that stands at the end of its execve, before its
// first instruction, through ptrace and /proc/PID/mem.
//
//	p, status, ended, err := tracee.StopAtExec(pid)  // started with PTRACE_TRACEME
//	err = p.CheckFile(file)                          // the one that was planned
//	err = p.Inject(plan)
//	err = p.SetSignals(ignored, blocked)
//	err = p.Detach()
//
// It is in layers: the process's memory (memory.go) and registers (a file a
// machine); system calls that the process is made to do (call.go); on them what is
// done at the exec stop (inject.go, signals.go) and to an emulator (substitute.go).
// The lower ones know nothing of exec, so that a process that is attached to while
// it runs can stand on them, too.
package tracee
