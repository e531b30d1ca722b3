package tracee

import (
	"bytes"
	"errors"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// More functions of a program that is traced already.
//
// They are put into a process as libraries are: with memory and a runtime of their own, which joins the one that is there. That
// one is at work now. So the thread that is made to start it must not be in the middle of the runtime's code.

// Add puts a plan of more functions of an image into a process: of a library that was attached to, or of its program. If
// something is where it is to be, the error is a TakenError, and the process is as it was.
func (a *Attachment) Add(pid int, of uint64, m *patch.Memory) error {
	ts, err := openThreads(pid)
	if err != nil {
		return err
	}
	defer ts.close()
	a.mu.Lock()
	defer a.mu.Unlock()
	im := &image{m: m, bias: auxValue(ts.aux, atEntry) - m.OrigEntry, beside: true}
	ms, err := ts.maps()
	if err != nil {
		return err
	}
	for _, o := range a.images {
		if l := o.library; l != nil && o.m.Running != nil && o.m.Running.Image == of && !o.beside && l.in(ms) {
			im.library, im.bias = l, o.bias
		}
	}
	return a.add(ts, []*image{im}, -1)
}

// Has tells whether a process has an image.
func (r *Runtime) Has(image uint64) bool {
	for i := range r.Images {
		if r.Images[i].ID == image {
			return true
		}
	}
	return false
}

// outside does something while a thread is stopped that is not in the runtime, or all are.
func (ts *threads) outside(do func(ms []mapping) error) error {
	const alone = 20 // tries with one thread
	began, pause := time.Now(), leavePause
	for tries := 1; ; tries++ {
		r, err := OpenRuntime(ts.pid)
		if err != nil {
			return err
		}
		err = ts.within(tries <= alone, func() error {
			ms, err := ts.maps()
			if err == nil {
				_, err = r.vacate(ts, ms, time.Now().Add(stopLimit))
			}
			if err != nil {
				return err
			}
			return do(ms)
		})
		r.Close()
		if !errors.Is(err, ErrInside) || tries >= leaveTries && time.Since(began) > insidePatience {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, insidePause)
	}
}

// layered has edits of the same place, which are in the order in which they were made, be one.
func layered(edits []arch.Edit) []arch.Edit {
	out := edits[:0]
	for _, e := range edits {
		if n := len(out); n > 0 && out[n-1].Addr == e.Addr && bytes.Equal(out[n-1].New, e.Old) {
			out[n-1].New, out[n-1].Reason = e.New, e.Reason
			continue
		}
		out = append(out, e)
	}
	return out
}
