package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/names"
)

// testImage is the image of most tests: ids 1.. are the functions a, b, c ...
const testImage = ImageID(0x1234)

// build writes a trace directory; fn writes the tasks. One tick is one ns.
func build(t testing.TB, fn func(w *Writer)) string {
	t.Helper()
	return buildHeader(t, Header{Counter: 1000, Monotonic: 5_000_000, CounterHz: 1e9}, fn)
}

func buildHeader(t testing.TB, h Header, fn func(w *Writer)) string {
	t.Helper()
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(Image{ID: testImage, Path: "/bin/prog", Sites: 26}); err != nil {
		t.Fatal(err)
	}
	fn(w)
	if err := os.WriteFile(filepath.Join(dir, EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	var sym strings.Builder
	sym.WriteString("# path: /bin/prog\n")
	for i := range 26 {
		fmt.Fprintf(&sym, "%d\t%x\t10\t%x\tplain\t%c\n", i+1, 0x401000+16*i, 0x401000+16*i, 'a'+i)
	}
	if err := os.WriteFile(filepath.Join(dir, testImage.String()+SymExt), []byte(sym.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

// noNames lets no program be looked for that a test has made up.
var noNames = Options{Resolve: func(Image) (SymTable, error) { return &names.Table{}, nil }}

func open(t testing.TB, dir string) *Trace {
	t.Helper()
	tr, err := OpenWith(dir, noNames)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// script plays a text on a task: a time, then what happens then. A letter in
// lower case is an entry, in upper case an exit.
//
//	10 a 20 B 30 resync:2 40 stack:1 50 lost:3 60 end mark:9 comm:x fork start
func script(t testing.TB, k *TaskWriter, text string) {
	t.Helper()
	var now uint64
	for f := range strings.FieldsSeq(text) {
		word, arg, _ := strings.Cut(f, ":")
		var n uint64
		fmt.Sscan(arg, &n)
		switch {
		case f[0] >= '0' && f[0] <= '9':
			fmt.Sscan(f, &now)
			now += 1000
		case word == "resync":
			k.Resync(now, n)
		case word == "stack":
			k.Stack(now, n)
		case word == "lost":
			k.Lost(now, n)
		case word == "mark":
			k.Mark(now, n, "")
		case word == "comm":
			k.Comm(now, arg)
		case word == "fork":
			k.Fork(now)
		case word == "start":
			k.Start(now)
		case word == "end":
			k.End(now)
		case len(f) == 1 && f[0] >= 'a' && f[0] <= 'z':
			k.Enter(now, uint32(f[0]-'a'+1))
		case len(f) == 1 && f[0] >= 'A' && f[0] <= 'Z':
			k.Exit(now, uint32(f[0]-'A'+1))
		default:
			t.Fatalf("script: %q", f)
		}
	}
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
}

// text is a trace's events, one a line.
func text(t testing.TB, tr *Trace, o WalkOptions) string {
	t.Helper()
	var b strings.Builder
	err := tr.Walk(o, func(ev *Event) error {
		fmt.Fprintf(&b, "%d %s %s%s", ev.Time, ev.Task, strings.Repeat(". ", ev.Depth), ev.Kind)
		if ev.Func.ID != 0 {
			fmt.Fprintf(&b, " %s", tr.Name(ev.Func))
		}
		switch ev.Kind {
		case Exit, Unwound, Unfinished:
			if ev.Flags&FlagNoEntry == 0 {
				fmt.Fprintf(&b, " %d/%d", ev.Dur, ev.Self)
			}
		case Lost, Stack, Mark, Fork:
			fmt.Fprintf(&b, " %d", ev.Count)
		}
		for i, s := range []string{"leaf", "tail", "noentry", "inherited", "resumed"} {
			if ev.Flags&(1<<i) != 0 {
				b.WriteString(" " + s)
			}
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func lines(s ...string) string { return strings.Join(s, "\n") + "\n" }

func TestWalkOneTask(t *testing.T) {
	dir := build(t, func(w *Writer) {
		script(t, w.Task(TaskID{PID: 7, TID: 7, Image: testImage, Comm: "prog"}),
			"0 a 10 b 15 B 20 c 25 d 30 D 40 C 50 A")
	})
	tr := open(t, dir)
	want := lines(
		"0 prog-7 entry a",
		"10 prog-7 . entry b leaf",
		"15 prog-7 . exit b 5/5 leaf",
		"20 prog-7 . entry c",
		"25 prog-7 . . entry d leaf",
		"30 prog-7 . . exit d 5/5 leaf",
		"40 prog-7 . exit c 20/15",
		"50 prog-7 exit a 50/25",
	)
	if d := cmp.Diff(want, text(t, tr, WalkOptions{})); d != "" {
		t.Error(d)
	}
	if tr.Clock.Monotonic != 5_000_000 || len(tr.Problems) != 0 {
		t.Errorf("monotonic %d, problems %v", tr.Clock.Monotonic, tr.Problems)
	}
}

// TestWalkOptions visits some tasks and some of the time.
func TestWalkOptions(t *testing.T) {
	tr := open(t, build(t, func(w *Writer) {
		script(t, w.Task(TaskID{PID: 7, TID: 7, Image: testImage, Comm: "p"}), "0 a 10 b 20 B 30 c 40 C 50 A")
		script(t, w.Task(TaskID{PID: 7, TID: 8, Image: testImage, Comm: "q"}), "5 d 25 e 26 E 45 D")
		script(t, w.Task(TaskID{PID: 7, TID: 8, Key: 46, Image: testImage, Comm: "r"}), "46 f 47 F")
	}))
	for _, c := range []struct {
		o    WalkOptions
		want []string
	}{
		{WalkOptions{From: 15, To: 30}, []string{
			"20 p-7 . exit b 10/10 leaf", "25 q-8 . entry e leaf", "26 q-8 . exit e 1/1 leaf", "30 p-7 . entry c leaf",
		}},
		{WalkOptions{From: 45}, []string{"45 q-8 exit d 40/39", "46 r-8 entry f leaf", "47 r-8 exit f 1/1 leaf", "50 p-7 exit a 50/30"}},
		{WalkOptions{Tasks: tr.TaskByTID(8), To: 25}, []string{"5 q-8 entry d", "25 q-8 . entry e leaf"}},
		{WalkOptions{Tasks: tr.TaskByTID(9), To: 25}, nil},
	} {
		want := ""
		if len(c.want) > 0 {
			want = lines(c.want...)
		}
		if d := cmp.Diff(want, text(t, tr, c.o)); d != "" {
			t.Errorf("%+v: %s", c.o, d)
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := tr.Walk(WalkOptions{}, func(*Event) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("%d events, error %v", n, err)
	}
}

// TestReadError checks that an error of the disk is an error, not an end.
func TestReadError(t *testing.T) {
	dir := buildHeader(t, slotsHeader, func(w *Writer) {
		k := w.Task(TaskID{PID: 7, TID: 7, Image: testImage})
		for i := range uint64(5000) {
			k.Enter(1000+2*i, 1)
			k.Exit(1001+2*i, 1)
		}
		k.Flush()
	})
	b, err := os.ReadFile(filepath.Join(dir, EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	f := &failingReader{b: b, bad: -1}
	tr := &Trace{}
	if err := tr.load(f, int64(len(b)), noNames); err != nil {
		t.Fatal(err)
	}
	f.bad = int64(len(b)) / 2
	if _, err := tr.Report(ReportOptions{}); err == nil || !strings.Contains(err.Error(), "bad disk") {
		t.Errorf("report: %v", err)
	}
	if _, err := tr.Graph(GraphOptions{}); err == nil || !strings.Contains(err.Error(), "offset 0x") {
		t.Errorf("graph: %v", err)
	}
	if err := tr.Walk(WalkOptions{}, func(*Event) error { return nil }); err == nil || !strings.Contains(err.Error(), "bad disk") {
		t.Errorf("walk: %v", err)
	}
	if err := (&Trace{}).load(f, int64(len(b)), noNames); err == nil || !strings.Contains(err.Error(), "bad disk") {
		t.Errorf("load: %v", err)
	}
}

// failingReader fails to read what lies behind bad, unless that is negative.
type failingReader struct {
	b   []byte
	bad int64
}

func (f *failingReader) ReadAt(b []byte, off int64) (int, error) {
	if f.bad >= 0 && off+int64(len(b)) > f.bad {
		return 0, errors.New("bad disk")
	}
	return bytes.NewReader(f.b).ReadAt(b, off)
}
