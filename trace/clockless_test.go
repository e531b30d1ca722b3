package trace

import (
	"bytes"
	"testing"
)

// TestClockless reads a trace whose image says that there is no clock: calls and their order are there, times are not.
func TestClockless(t *testing.T) {
	for _, clock := range []string{"", "\x00clock=none"} {
		var b bytes.Buffer
		w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		im := appendChunkHeader(nil, ChunkImage, TaskID{PID: 1, TID: 1, Image: testImage}, 0, 1000, 0)
		im = append(im, "path=/x\x00nsites=9"+clock+"\x00"...)
		if _, err := w.WriteChunk(append(im, make([]byte, -len(im)&7)...)); err != nil {
			t.Fatal(err)
		}
		k := w.Task(TaskID{PID: 1, TID: 1, Image: testImage})
		k.Enter(1008, 1)
		k.Enter(1016, 2)
		k.Exit(1024, 2)
		k.Exit(1032, 1)
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
		tr := open(t, eventsFile(t, b.Bytes()))
		none := clock != ""
		if tr.Clockless() != none {
			t.Errorf("%q: clockless is %v", clock, tr.Clockless())
		}
		rows, err := tr.Report(ReportOptions{})
		if err != nil || len(rows) != 2 {
			t.Fatal(rows, err)
		}
		for _, r := range rows {
			if r.Calls != 1 || (r.Total == -1) != none || (r.Max == -1) != none || (r.Hist == nil) != none {
				t.Errorf("%q: %+v", clock, r)
			}
		}
	}
}
