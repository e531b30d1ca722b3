//go:build linux

package tracee

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// Plans that contradict themselves are refused before anything is started.
func TestMemoryCheck(t *testing.T) {
	good := func() *patch.Memory {
		return &patch.Memory{RX: make([]byte, 4096), RXAddr: 0x10000, Entry: 0x10010, RWAddr: 0x20000, RWSize: 10, Edits: []arch.Edit{{Addr: 0x1000, Old: []byte{1, 2}, New: []byte{3, 4}}, {Addr: 0x1002, Old: []byte{1}, New: []byte{2}}}}
	}
	if err := Check(good()); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(m *patch.Memory){
		func(m *patch.Memory) { m.RX = nil },
		func(m *patch.Memory) { m.RXAddr++ },
		func(m *patch.Memory) { m.RXAddr = ^uint64(0xfff); m.RX = make([]byte, 8192) },
		func(m *patch.Memory) { m.RWSize = ^uint64(0) - 0x10000 },
		func(m *patch.Memory) { m.Entry = 0x11000 },
		func(m *patch.Memory) { m.PhdrAddr = 0x10ff0; m.Phnum = 1 },
		func(m *patch.Memory) { m.PhdrAddr = 0x10000 },
		func(m *patch.Memory) { m.Edits[1].Addr-- },
		func(m *patch.Memory) { m.Edits[0].New = nil },
		func(m *patch.Memory) { m.Edits[0].Old, m.Edits[0].New = nil, nil },
		func(m *patch.Memory) { m.Edits[1].Addr = ^uint64(0) },
	} {
		m := good()
		change(m)
		if err := Check(m); err == nil {
			t.Errorf("change %d is accepted", i)
		}
	}
}

// The memory of a process that has ended, or executes another program, says so; what is not mapped is another error.
func TestMemoryEnded(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	defer end()
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", cmd.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	p := &Process{pid: cmd.Process.Pid, mem: mem}
	b := make([]byte, 8)
	if err := p.ReadAt(b, 0); err == nil || errors.Is(err, ErrEnded) {
		t.Errorf("nothing is mapped: %v", err)
	}
	end()
	if err := p.ReadAt(b, 0); !errors.Is(err, ErrEnded) {
		t.Errorf("it has ended: %v", err)
	}
}
