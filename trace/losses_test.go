package trace_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// What is missing is what tasks say, what the header says, and what was in a pool whose
// recorder was killed: since when is known by the tasks that had not ended.
func TestLosses(t *testing.T) {
	const hz, start = 1e9, 1 << 20
	for _, tt := range []struct {
		name string
		head trace.Header
		kill bool // the recorder
		want trace.Losses
	}{
		{"none", trace.Header{}, false, trace.Losses{Events: 5}},
		{"header", trace.Header{LostUnborn: 7, Overwritten: 9}, false, trace.Losses{Events: 12, Overwritten: 9}},
		{"time", trace.Header{Uncounted: 2, UncountedFrom: start + 100, UncountedTo: start + 900}, false,
			trace.Losses{Events: 5, Uncounted: &trace.Interval{From: 100, To: 900}}},
		{"no end", trace.Header{Uncounted: 2, UncountedFrom: start + 100, UncountedTo: 3}, false,
			trace.Losses{Events: 5, Uncounted: &trace.Interval{From: 100, To: trace.NoEnd}}},
		{"before the start", trace.Header{Uncounted: 1, UncountedFrom: 3}, false,
			trace.Losses{Events: 5, Uncounted: &trace.Interval{From: 0, To: trace.NoEnd}}},
		{"killed", trace.Header{}, true, trace.Losses{Events: 5, Uncounted: &trace.Interval{From: 200, To: trace.NoEnd}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := tt.head
			h.Counter, h.CounterHz, h.Layout, h.Closed = start, hz, trace.LayoutPacked, !tt.kill
			h.Recorder = 1 << 22
			var b bytes.Buffer
			w, err := trace.NewWriter(&b, h)
			if err != nil {
				t.Fatal(err)
			}
			ended := w.Task(trace.TaskID{PID: 1, TID: 1, Key: 1, Comm: "ended"})
			ended.Enter(start+50, 1)
			ended.Lost(start+60, 5)
			ended.End(start + 70)
			live := w.Task(trace.TaskID{PID: 1, TID: 2, Key: 2, Comm: "live"})
			live.Enter(start+200, 1)
			live.Exit(start+300, 1)
			for _, k := range []*trace.TaskWriter{ended, live} {
				if err := k.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
			tr, err := trace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			if d := cmp.Diff(tt.want, tr.Losses()); d != "" {
				t.Error(d)
			}
			if n := binary.LittleEndian.Uint32(b.Bytes()[format.HUncounted:]); n != tt.head.Uncounted {
				t.Errorf("%d uncounted in the file", n)
			}
		})
	}
}
