package tracee

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A parked process makes system calls in one go, up to the first that fails, and notices nothing of them.
func TestParkedCalls(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 8"}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		t.Skipf("needs ptrace: %v", err)
	}
	tr, _, _, err := StopAtExec(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Kill()
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL|unix.PTRACE_O_TRACESYSGOOD); err != nil {
		t.Fatal(err)
	}
	before, err := tr.registers()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.park(); err != nil {
		t.Fatal(err)
	}
	below := make([]byte, 16<<10) // the stack
	if err := tr.ReadAt(below, before.sp()-uint64(len(below))); err != nil {
		t.Fatal(err)
	}
	const at = 0x10000000
	none := ^uint64(0)
	calls := []call{
		{nr: unix.SYS_GETPID},
		anonymous(at, PageSize, unix.PROT_READ|unix.PROT_WRITE),
		{nr: unix.SYS_MPROTECT, args: [6]uint64{at, PageSize, unix.PROT_READ}},
		{nr: unix.SYS_CLOSE, args: [6]uint64{none}},
		{nr: unix.SYS_GETPID},
	}
	done, err := tr.makes(calls)
	if done != 3 || err != syscall.EBADF || calls[0].value != uint64(pid) || calls[1].value != at || calls[2].value != 0 || calls[4].value != 0 {
		t.Errorf("%d made, %v: %+v", done, err, calls)
	}
	if done, err := tr.makes(calls[:1]); done != 1 || err != nil {
		t.Errorf("%d made, %v", done, err)
	}
	if fd, err := tr.syscall(unix.SYS_CLOSE, none); err != syscall.EBADF {
		t.Errorf("close: %d, %v", fd, err)
	}
	if v, err := tr.syscall(unix.SYS_GETPID); v != uint64(pid) || err != nil {
		t.Errorf("getpid: %d, %v", v, err)
	}
	after := make([]byte, len(below))
	if err := tr.ReadAt(after, before.sp()-uint64(len(below))); err != nil || string(after) != string(below) {
		t.Errorf("the stack has changed: %v", err)
	}
	if err := tr.unpark(); err != nil {
		t.Fatal(err)
	}
	if now, err := tr.registers(); err != nil || *now != *before {
		t.Errorf("%+v, not %+v: %v", now, before, err)
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		t.Fatal(err)
	}
	if ws, err := tr.wait(); err != nil || ws.ExitStatus() != 8 {
		t.Errorf("status %#x, %v", ws, err)
	}
}
