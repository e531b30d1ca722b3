package tracedat

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

// TestHeld: the file is the same, and memory is bounded, whatever may be held of pages. The first thread has only a
// return whose call is not in the trace, so it gets no pages.
func TestHeld(t *testing.T) {
	const threads, calls = 40, 150
	tr := sample.Build(t, []string{"main", "f"}, func(w *trace.Writer) {
		o := w.Task(trace.TaskID{PID: 7, TID: 7, Image: sample.Image, Comm: "main"})
		o.Exit(1001, 1)
		o.Flush()
		for i := range threads {
			k := w.Task(trace.TaskID{PID: 7, TID: 8 + i, Key: uint64(1 + i), Image: sample.Image, Comm: fmt.Sprint("t", i)})
			for j := range calls {
				at := 1000 + uint64(j)*1e6*uint64(i+1)
				k.Enter(at, 2)
				k.Exit(at+1<<28, 2)
			}
			k.Flush()
		}
	})
	file := func(limit int) (out []byte, parts, pages int) {
		spool, err := os.Create(filepath.Join(t.TempDir(), "spool"))
		if err != nil {
			t.Fatal(err)
		}
		defer spool.Close()
		var b bytes.Buffer
		w := newWriter(export.From(tr), &export.Summary{}, spool)
		w.pages.max = limit
		if err := w.writeAll(&b, export.From(tr)); err != nil {
			t.Fatal(err)
		}
		for _, of := range w.pages.buffers {
			if cap(of.data) > limit+2*pageSize {
				t.Errorf("limit %d: a buffer of %d bytes", limit, cap(of.data))
			}
			parts, pages = parts+len(of.parts)+listed*len(of.lists), pages+of.full
			if len(of.parts) >= listed || limit == 0 && len(of.lists) == 0 {
				t.Errorf("limit %d: %d parts in memory, %d lists in the spool", limit, len(of.parts), len(of.lists))
			}
		}
		if w.pages.held != 0 || len(w.pages.buffers) != threads {
			t.Errorf("limit %d: %d bytes left of %d buffers", limit, w.pages.held, len(w.pages.buffers))
		}
		return b.Bytes(), parts, pages
	}
	want, parts, pages := file(maxHeld)
	if parts != pages || pages < 3*threads {
		t.Fatalf("%d pages in %d parts; wanted whole pages, and several of each thread", pages, parts)
	}
	for _, limit := range []int{0, 100, 5000, 50000} {
		got, parts, _ := file(limit)
		if !bytes.Equal(got, want) {
			t.Errorf("limit %d: another file", limit)
		}
		if parts <= pages {
			t.Errorf("limit %d: no page was spilled", limit)
		}
	}
}
