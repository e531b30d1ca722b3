//go:build linux

package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

// TestIndexing: what is written of the index beside a recording is an index of it, or a part of one, and reports are
// the same with it. A trace that is not worth it gets none.
func TestIndexing(t *testing.T) {
	for _, worth := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "data")
		d, err := tracedir.Create(dir)
		if err != nil {
			t.Fatal(err)
		}
		d.Commit()
		defer d.Close()
		head := trace.Header{Counter: 1000, CounterHz: 1e9, Layout: trace.LayoutPacked, Closed: true}
		w, err := trace.NewWriter(d.Events, head)
		if err != nil {
			t.Fatal(err)
		}
		list, err := d.CreateChunks()
		if err != nil {
			t.Fatal(err)
		}
		defer list.Close()
		w.List = list
		w.WriteImage(trace.Image{ID: 7, Path: "/bin/prog", Sites: 9})
		w.WriteMap(1, 1000, []trace.MapEntry{{First: 1, Count: 9, Image: 7}})
		x := newIndexing(d, 1<<18)
		go x.run()
		calls := 300_000
		if !worth {
			calls = 100
		}
		k, now := w.Task(trace.TaskID{PID: 1, TID: 1, Image: 7}), uint64(1000)
		for i := range calls {
			k.Enter(now, uint32(1+i%9))
			now += uint64(10 + i%17)
			k.Exit(now, uint32(1+i%9))
			if i%50_000 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
		x.end()
		x.wait()
		if _, err := os.Stat(filepath.Join(dir, trace.IndexFile)); (err == nil) != worth {
			t.Errorf("worth it: %v; %v", worth, err)
		}
		report := func() []trace.FuncStat {
			t.Helper()
			tr, err := trace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			if ok, err := tr.MakeIndex(trace.IndexOptions{Memory: true}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			rows, err := tr.Report(trace.ReportOptions{From: 1000, Calls: trace.Calls{Threshold: 20}})
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		have := report()
		os.Remove(filepath.Join(dir, trace.IndexFile))
		if want := report(); !cmp.Equal(want, have, cmp.AllowUnexported(trace.Histogram{})) || len(want) == 0 {
			t.Error(cmp.Diff(want, have, cmp.AllowUnexported(trace.Histogram{})))
		}
	}
}
