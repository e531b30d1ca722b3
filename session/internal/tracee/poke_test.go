//go:build linux && amd64

package tracee

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/fentry-dev/fentry/session/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }

// Where /proc/PID/mem does not write to read-only memory, ptrace does.
func TestPoke(t *testing.T) {
	path := fixture.CC(t, "../../testdata/answer", "-static", "-fno-pie")
	m := fixture.Answer(t, path)
	copy(m.RX[fixture.CodeStart:], append([]byte{0xe9}, le.AppendUint32(nil, uint32(m.OrigEntry-(m.RXAddr+fixture.CodeStart+5)))...)) // jmp orig
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec(path, []string{"answer", "x", "code"}, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Ptrace: true},
	})
	if err != nil {
		t.Skipf("needs ptrace: %v", err)
	}
	tr, _, _, err := StopAtExec(pid)
	if err != nil {
		t.Fatal(err)
	}
	tr.mem.Close()
	if tr.mem, err = os.Open(fmt.Sprintf("/proc/%d/mem", pid)); err != nil {
		t.Fatal(err)
	}
	if err := tr.Inject(m, false); err != nil || !tr.poke {
		tr.Kill()
		t.Fatalf("poked %t: %v", tr.poke, err)
	}
	if err := tr.SetSignals(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := tr.Detach(); err != nil {
		t.Fatal(err)
	}
	var ws syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 8 {
		t.Errorf("status %d, %v", ws.ExitStatus(), err)
	}
}
