//go:build linux

package procfs

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that was killed and cannot end yet is waited for; one that lives is not.
func TestAwaitEnd(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("cat")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer cmd.Wait()
	defer cmd.Process.Kill()
	s, err := ReadProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	far := time.Now().Add(time.Hour)
	if Ending(pid, pid) || AwaitEnd(pid, s.Start, far) || AwaitTask(pid, far) {
		t.Error("a process that lives is taken for one that ends")
	}
	if !AwaitEnd(pid, s.Start+1, far) || Ending(pid, pid) {
		t.Error("a process that began at another time is taken for this one")
	}
	// It stays where it is about to end.
	if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, unix.PTRACE_O_TRACEEXIT, 0, 0); errno != 0 {
		t.Skipf("needs ptrace: %v", errno)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, syscall.WALL, nil); err != nil || ws>>8 != unix.PTRACE_EVENT_EXIT<<8|syscall.WaitStatus(syscall.SIGTRAP) {
		t.Fatalf("%#x, %v", ws, err)
	}
	if past := time.Now().Add(-time.Second); !ProcessAlive(pid, s.Start) || !Ending(pid, pid) || AwaitEnd(pid, s.Start, past) || AwaitTask(pid, past) {
		t.Error("a process that was killed and has not ended yet is not taken for that")
	}
	ended := make(chan bool)
	go func() { ended <- AwaitEnd(pid, s.Start, far) }()
	go func() { ended <- AwaitTask(pid, far) }()
	if err := syscall.PtraceDetach(pid); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !<-ended {
			t.Error("a process that ends is not waited for")
		}
	}
	_ = cmd.Wait()
	if !Ending(pid, pid) || !AwaitTask(pid, far) {
		t.Error("a process that is gone is not taken for that")
	}
}
