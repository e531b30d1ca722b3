package ndjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

const testImage = sample.Image

func build(t testing.TB, names []string, fn func(w *trace.Writer)) *trace.Trace {
	t.Helper()
	h := trace.Header{Counter: 1000, CounterHz: 1e9}
	return sample.BuildOf(t, h, trace.Image{ID: testImage, Path: `/bin/a "b"`}, names, fn)
}

func textOf(t testing.TB, tr *trace.Trace) string {
	t.Helper()
	var b bytes.Buffer
	j := New(&b, tr)
	if err := tr.Walk(trace.WalkOptions{}, j.Event); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestLines has every kind of event and flag.
func TestLines(t *testing.T) {
	tr := build(t, []string{"f", "g"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 8, Image: testImage, Comm: "p"})
		k.Start(1000)
		k.Exit(1001, 2)
		k.Enter(1002, 1)
		k.Enter(1003, 2)
		k.Exit(1005, 2)
		k.Enter(1005, 2)
		k.Resync(1006, 1)
		k.Exit(1008, 2)
		k.Mark(1009, 1<<63, "")
		k.Mark(1009, 7, "half\n\"done\"\xff")
		k.SysEnter(1009, 1, []uint64{2, 0x7000})
		k.Signal(1009, trace.Signal{Number: 11})
		k.SysExit(1009, ^uint64(1))
		k.Comm(1010, "q")
		k.Lost(1011, 3)
		k.Stack(1012, 4)
		k.Enter(1013, 1)
		k.End(1020)
		k.Flush()
		c := w.Task(trace.TaskID{PID: 9, TID: 9, Key: 1, ParentPID: 7, ParentTID: 8, Image: testImage, Comm: "c"})
		c.Fork(1004)
		c.Exit(1007, 1)
		c.Flush()
	})
	image := `"image":"/bin/a \"b\""`
	f := `"func":"f",` + image + `,"addr":"0x401000"`
	g := `"func":"g",` + image + `,"addr":"0x401040"`
	p := `"pid":7,"tid":8,"comm":"p","task":0`
	q := `"pid":7,"tid":8,"comm":"q","task":0`
	c := `"pid":9,"tid":9,"comm":"c","task":1`
	want := []string{
		`{"time":0,"event":"start",` + p + `,"depth":0}`,
		`{"time":1,"event":"exit",` + p + `,"depth":0,` + g + `,"flags":["no_entry"]}`,
		`{"time":2,"event":"entry",` + p + `,"depth":0,` + f + `}`,
		`{"time":3,"event":"entry",` + p + `,"depth":1,` + g + `,"caller":"f","dur":2,"self":2,"flags":["leaf"]}`,
		`{"time":4,"event":"fork",` + c + `,"depth":1,"ppid":7,"ptid":8}`,
		`{"time":5,"event":"exit",` + p + `,"depth":1,` + g + `,"caller":"f","dur":2,"self":2,"flags":["leaf","tail"]}`,
		`{"time":5,"event":"entry",` + p + `,"depth":1,` + g + `,"caller":"f","flags":["tail"]}`,
		`{"time":6,"event":"unwound",` + p + `,"depth":1,` + g + `,"caller":"f","dur":1,"self":1}`,
		`{"time":7,"event":"exit",` + c + `,"depth":0,` + f + `,"dur":3,"self":3,"flags":["inherited"]}`,
		`{"time":8,"event":"exit",` + p + `,"depth":1,` + g + `,"caller":"f","dur":3,"self":1,"flags":["resumed"]}`,
		`{"time":9,"event":"mark",` + p + `,"depth":1,"count":9223372036854775808}`,
		`{"time":9,"event":"mark",` + p + `,"depth":1,"count":7,"text":"half\n\"done\"` + "\ufffd" + `"}`,
		`{"time":9,"event":"sys_enter",` + p + `,"depth":1,"func":"sys_write","caller":"f","count":1,"words":["0x2","0x7000"],` +
			`"args":{"fd":2,"buf":"","count":0},"text":"write(2, \"\", 0)"}`,
		`{"time":9,"event":"signal",` + p + `,"depth":2,"count":11,"signal":"SIGSEGV","code":0,"address":"0x0","pc":"0x0","blocked":"0x0"}`,
		`{"time":9,"event":"sys_exit",` + p + `,"depth":1,"func":"sys_write","caller":"f","dur":0,"self":0,"result":-2,"errno":"ENOENT"}`,
		`{"time":10,"event":"comm",` + q + `,"depth":1}`,
		`{"time":11,"event":"lost",` + q + `,"depth":1,"count":3}`,
		`{"time":12,"event":"stack",` + q + `,"depth":0,"stack":4,"count":4}`,
		`{"time":13,"event":"entry",` + q + `,"depth":0,` + f + `,"stack":4}`,
		`{"time":13,"event":"unfinished",` + q + `,"depth":0,` + f + `,"dur":0,"self":0,"stack":4}`,
		`{"time":13,"event":"unfinished",` + q + `,"depth":0,` + f + `,"dur":11,"self":7}`,
		`{"time":20,"event":"thread_end",` + q + `,"depth":0}`,
		``,
	}
	if d := cmp.Diff(want, strings.Split(textOf(t, tr), "\n")); d != "" {
		t.Error(d)
	}
}

// TestStrings checks that every line is JSON and names survive it.
func TestStrings(t *testing.T) {
	names := []string{"plain", `quo"te`, `back\slash`, "_ZN3fooIcE3barE", "ünïcødé", "bad\xff\xfeutf8", "tab\tnew\nline", "\x01\x7f", "\u2028"}
	var escaped []string
	for _, n := range names {
		var b strings.Builder
		for i := range len(n) {
			if c := n[i]; c < ' ' || c == '\\' || c == 0x7f {
				fmt.Fprintf(&b, `\x%02x`, c)
			} else {
				b.WriteByte(c)
			}
		}
		escaped = append(escaped, b.String())
	}
	tr := build(t, escaped, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: testImage, Comm: "c\"\\\x01\xff"})
		for i := range names {
			k.Enter(uint64(1000+i), uint32(i+1))
		}
		k.Flush()
	})
	n := 0
	for line := range strings.Lines(textOf(t, tr)) {
		var ev struct{ Event, Func, Comm string }
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if ev.Event != "entry" {
			continue
		}
		if want := string([]rune(names[n])); ev.Func != want { // each bad byte is U+FFFD
			t.Errorf("%q, want %q", ev.Func, want)
		}
		if ev.Comm != "c\"\\\x01?" {
			t.Errorf("comm %q", ev.Comm)
		}
		n++
	}
	if n != len(names) {
		t.Errorf("%d lines", n)
	}
}

// A failing writer's error is returned, and nothing is written after it.
type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n++; f.n > 1 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestWriteError(t *testing.T) {
	tr := build(t, []string{"f"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: testImage})
		for i := range uint64(5000) {
			k.Enter(1000+2*i, 1)
			k.Exit(1001+2*i, 1)
		}
		k.Flush()
	})
	f := &failing{}
	j := New(f, tr)
	if err := tr.Walk(trace.WalkOptions{}, j.Event); err != io.ErrShortWrite {
		t.Errorf("error %v", err)
	}
	if err := j.Close(); err != io.ErrShortWrite || f.n != 2 {
		t.Errorf("error %v after %d writes", err, f.n)
	}
}

func BenchmarkNDJSON(b *testing.B) {
	const events = 1_000_000
	tr := build(b, []string{"f", "g"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 7, TID: 7, Image: testImage, Comm: "p"})
		for i := uint64(0); i < events/4; i++ {
			k.Enter(1000+40*i, 1)
			k.Enter(1010+40*i, 2)
			k.Exit(1020+40*i, 2)
			k.Exit(1030+40*i, 1)
		}
		k.Flush()
	})
	for b.Loop() {
		j := New(io.Discard, tr)
		if err := tr.Walk(trace.WalkOptions{}, j.Event); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*events/1e6/b.Elapsed().Seconds(), "Mevents/s")
}

// TestSkipped counts what has no line.
func TestSkipped(t *testing.T) {
	tr := build(t, []string{"f"}, func(w *trace.Writer) {
		k := w.Task(trace.TaskID{PID: 1, TID: 1, Image: testImage})
		k.Enter(1000, 1)
		k.Flush()
	})
	var b bytes.Buffer
	j := New(&b, tr)
	for _, kind := range []trace.Kind{0, trace.Unknown, 200, trace.Cut} {
		if err := j.Event(&trace.Event{Kind: kind, Task: tr.Tasks[0], Text: "stack"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if want := `{"time":0,"event":"cut","pid":1,"tid":1,"comm":"","task":0,"depth":0,"text":"stack"}` + "\n"; b.String() != want || j.Skipped() != 3 {
		t.Errorf("%d skipped, %s", j.Skipped(), b.String())
	}
}
