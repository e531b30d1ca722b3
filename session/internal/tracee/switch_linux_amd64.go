package tracee

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/internal/format"
)

// Images are the image ids of the plans, and how many functions each traces: their local ids are 1 to that.
func (a *Attachment) Images() map[uint64]int {
	out := make(map[uint64]int)
	for _, im := range a.images {
		out[im.m.Running.Image] = im.m.Running.Traced
	}
	return out
}

// Switch switches functions of the process on and off, or of a child that it has forked since, by image id and local id.
// Nobody is stopped: a call that is open ends as ever.
func (a *Attachment) Switch(pid int, on func(image uint64, id uint32) bool) error {
	dir, err := liveThread(pid)
	if err != nil {
		return nil // it has ended
	}
	f, err := os.OpenFile(dir+"/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, im := range a.images {
		if err := im.turn(&Process{pid: pid, mem: f}, on); err != nil {
			return err
		}
	}
	return nil
}

// turn switches functions of an image.
func (im *image) turn(mem *Process, on func(image uint64, id uint32) bool) error {
	at := im.bias + im.m.Running.Switches
	now := make([]byte, im.m.Running.Traced)
	if err := mem.ReadAt(now, at); err != nil {
		return err
	}
	// Each byte is written on its own, and only if it changes: the process changes others meanwhile.
	for i, b := range now {
		want := b &^ (format.SwitchOn | format.SwitchCostly)
		switch {
		case !on(im.m.Running.Image, uint32(i)+1):
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
