//go:build linux

package tracefs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// shortCalls has many calls of a leaf function in each call of burst: many events have the same time.
type shortCalls struct {
	made
	n int // events that there are
}

// The names of functions have no symbols: they are their numbers.
const (
	leafID, burstID = 1, 2
	leaf            = "#1"
)

// event is the event at a place, and its time.
func (s *shortCalls) event(i int) (time uint64, enter bool, fn uint32) {
	const round = 22
	time = 2000 + uint64(i/3)
	switch i % round {
	case 0:
		return time, true, burstID
	case round - 1:
		return time, false, burstID
	}
	return time, i%2 == 1, leafID
}

func newShortCalls(t *testing.T, tracer string) (*shortCalls, *FS) {
	s := &shortCalls{made: made{t: t, now: 1000, functions: []Function{
		{Image: 5, ID: leafID, Name: "leaf"}, {Image: 5, ID: burstID, Name: "burst"},
	}}}
	s.events = func(w *trace.Writer) {
		if err := w.WriteImage(trace.Image{ID: 5, Sites: 2}); err != nil {
			t.Fatal(err)
		}
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: 5})
		for i := range s.n {
			if at, enter, fn := s.event(i); enter {
				k.Enter(at, fn)
			} else {
				k.Exit(at, fn)
			}
		}
		if err := k.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	fs, err := newFS(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.top.change(func(s *settings) { s.tracer = tracer }); err != nil {
		t.Fatal(err)
	}
	return s, fs
}

// read is what trace has, or takes some events from trace_pipe, as many as there are with 0.
func read(t *testing.T, fs *FS, consume bool, most int) (text string, n int) {
	t.Helper()
	tr, err := fs.open()
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	b, n, err := fs.top.text(tr, -1, most, consume)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "#") {
			text += line
		}
	}
	return text, n
}

// TestPipeIsTrace: trace_pipe has what trace has, in whatever portions it is read.
func TestPipeIsTrace(t *testing.T) {
	const events = 220
	for _, tracer := range []string{tracerFunction, tracerGraph} {
		for _, most := range []int{0, 1, 2, 10} {
			t.Run(fmt.Sprint(tracer, most), func(t *testing.T) {
				s, fs := newShortCalls(t, tracer)
				s.n = events
				want, all := read(t, fs, false, 0)
				if lines := strings.Count(want, leaf); lines != 100 {
					t.Fatalf("trace has %d leaf calls:\n%s", lines, want)
				}
				got, took := read(t, fs, true, most)
				for n := took; n > 0; took += n {
					var more string
					more, n = read(t, fs, true, most)
					got += more
				}
				// A call's name stands at its end, too, if its beginning is in another portion.
				got = strings.ReplaceAll(got, " /* 0000000000000005:#2 */", "")
				if got != want || took != all {
					t.Errorf("trace_pipe has %d events, trace %d:\n%s\nwant\n%s", took, all, got, want)
				}
				if left, _ := read(t, fs, false, 0); left != "" {
					t.Errorf("trace has what trace_pipe has taken: %s", left)
				}
			})
		}
	}
}

// TestPipeFollows: each event is in trace_pipe once if it is read whenever there is one more.
func TestPipeFollows(t *testing.T) {
	const events = 66
	for _, tracer := range []string{tracerFunction, tracerGraph} {
		s, fs := newShortCalls(t, tracer)
		got := ""
		for s.n = range events + 1 {
			text, _ := read(t, fs, true, 0)
			got += text
		}
		if leaves := strings.Count(got, leaf) - strings.Count(got, "} /* 0000000000000005:#1 */"); leaves != 30 {
			t.Errorf("%s: trace_pipe has %d leaf calls:\n%s", tracer, leaves, got)
		}
		if tracer == tracerGraph && strings.Count(got, "{\n") != strings.Count(got, "}") {
			t.Errorf("calls do not end as often as they begin:\n%s", got)
		}
	}
}

// TestProbesCount: a command happens as often as its function is called, even when calls have the same time.
func TestProbesCount(t *testing.T) {
	const events = 66
	for _, step := range []int{1, 2, 3, 5, events} {
		s, fs := newShortCalls(t, tracerFunction)
		if err := fs.top.command("leaf:stacktrace:100"); err != nil {
			t.Fatal(err)
		}
		for s.n = step; ; s.n = min(s.n+step, events) {
			if err := fs.scan(); err != nil {
				t.Fatal(err)
			}
			if s.n == events {
				break
			}
		}
		if left := fs.top.probes[0].left; left != 70 {
			t.Errorf("%d events at a time: %d calls of 30 were seen", step, 100-left)
		}
	}
}

// TestStackOfOne: a stack is shown at calls of the function that has the command, not at others of the same time.
func TestStackOfOne(t *testing.T) {
	s, fs := newShortCalls(t, tracerFunction)
	if err := fs.top.command("burst:stacktrace"); err != nil {
		t.Fatal(err)
	}
	s.n = 66
	text, _ := read(t, fs, false, 0)
	if n := strings.Count(text, "<stack trace>\n"); n != 3 || strings.Count(text, " => 0000000000000005:#2\n") != 3 || strings.Contains(text, " => 0000000000000005:#1\n") {
		t.Errorf("%d stacks of 3:\n%s", n, text)
	}
}
