package trace

import (
	"os"
	"path/filepath"
	"testing"
)

// Events that are cut off while they are read are as good as damaged ones: what is left is shown, nothing crashes.
func TestTruncatedWhileRead(t *testing.T) {
	for _, size := range []int64{0, 4096, 70_000} {
		dir := build(t, func(w *Writer) {
			k := w.Task(TaskID{PID: 1, TID: 1, Image: testImage, Comm: "t"})
			for i := range uint64(40_000) {
				k.Enter(1000+4*i, 1)
				k.Exit(1002+4*i, 1)
			}
			if err := k.Flush(); err != nil {
				t.Fatal(err)
			}
		})
		tr := open(t, dir)
		calls := 0
		err := tr.Walk(WalkOptions{}, func(ev *Event) error {
			if calls++; calls == 100 {
				return os.Truncate(filepath.Join(dir, EventsFile), size)
			}
			return nil
		})
		if err != nil || calls < 100 || calls >= 80_000 {
			t.Errorf("cut to %d bytes: %d events, %v", size, calls, err)
		}
		rows, err := tr.Report(ReportOptions{})
		if err != nil || len(rows) > 1 {
			t.Errorf("cut to %d bytes: %v %v", size, rows, err)
		}
		root, err := tr.Graph(GraphOptions{})
		if err != nil || root == nil {
			t.Errorf("cut to %d bytes: %v", size, err)
		}
	}
}
