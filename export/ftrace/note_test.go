package ftrace

import (
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// TestNotes has what is not called, kind by kind, and kinds that nobody knows.
func TestNotes(t *testing.T) {
	tr := build(t, "f", func(w *trace.Writer) {
		k := w.Task(worker)
		k.Enter(1000, 1)
		k.Exit(1001, 1)
		k.Flush()
	})
	for _, c := range []struct {
		ev              trace.Event
		graph, function string
	}{
		{trace.Event{Kind: trace.Mark, Count: 3}, "/* mark 3 */", "tracing_mark_write: mark 3"},
		{trace.Event{Kind: trace.Mark, Text: "a\x1b[2Jb\n"}, "/* a?[2Jb */", "tracing_mark_write: a?[2Jb"},
		{trace.Event{Kind: trace.Cut, Count: 24, Text: "mark"}, "/* killed while it wrote this: mark */", ""},
		{trace.Event{Kind: trace.SignalDelivered, Count: 11}, "/* signal SIGSEGV */", ""},
		{trace.Event{Kind: trace.Stack, Count: 3}, "/* stack 3 */", ""},
		{trace.Event{Kind: trace.Stack, Count: 1<<63 | 7}, "/* goroutine 7 */", ""},
		{trace.Event{Kind: trace.ThreadEnd}, "/* thread ends */", ""},
		{trace.Event{Kind: trace.Unknown, Count: 99}, "", ""},
		{trace.Event{Kind: 200}, "", ""},
		{trace.Event{}, "", ""},
	} {
		c.ev.Task, c.ev.Comm = tr.Tasks[0], "w"
		var g, f strings.Builder
		gw := NewGraph(&g, tr, GraphOptions{NoHeader: true})
		fw := NewFunction(&f, tr, FunctionOptions{NoHeader: true})
		for _, w := range []interface {
			Event(*trace.Event) error
			Close() error
		}{gw, fw} {
			if err := w.Event(&c.ev); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
		end := func(s, want string) bool { return s == want || want != "" && strings.HasSuffix(s, " "+want+"\n") }
		if !end(g.String(), c.graph) || !end(f.String(), c.function) {
			t.Errorf("%+v:\ngraph    %q\nfunction %q", c.ev, g.String(), f.String())
		}
		skipped := uint64(0)
		if c.graph == "" {
			skipped = 1
		}
		if gw.Skipped() != skipped || fw.Skipped() != skipped {
			t.Errorf("%+v: %d and %d are skipped, want %d", c.ev, gw.Skipped(), fw.Skipped(), skipped)
		}
	}
}
