package tracee

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/internal/format"
)

// ImageID is the image id of the plan.
func (a *Attachment) ImageID() uint64 { return a.m.Running.Image }

// Traced is how many functions the plan traces, whose local ids are 1 to that.
func (a *Attachment) Traced() int { return a.m.Running.Traced }

// Switch switches functions of the process on and off, or of a child that it has forked since, by local id. Nobody is
// stopped: a call that is open ends as ever.
func (a *Attachment) Switch(pid int, on func(id uint32) bool) error {
	dir, err := liveThread(pid)
	if err != nil {
		return nil // it has ended
	}
	f, err := os.OpenFile(dir+"/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	mem, at := &Process{pid: pid, mem: f}, a.bias+a.m.Running.Switches
	now := make([]byte, a.m.Running.Traced)
	if err := mem.ReadAt(now, at); err != nil {
		return err
	}
	// Each byte is written on its own, and only if it changes: the process changes others meanwhile.
	for i, b := range now {
		want := b &^ (format.SwitchOn | format.SwitchCostly)
		switch {
		case !on(uint32(i) + 1):
			want = b &^ format.SwitchOn
		case b&format.SwitchOn != 0:
			want = b
		default:
			want |= format.SwitchOn
		}
		if want == b {
			continue
		}
		if err := mem.WriteAt([]byte{want}, at+uint64(i)); err != nil {
			return fmt.Errorf("switch of function %d: %w", i+1, err)
		}
	}
	return nil
}
