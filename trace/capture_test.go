package trace

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/names"
)

// captureText is what a symbol file says of a function f(char *s, int n), which returns an int.
func captureText(t testing.TB) string {
	t.Helper()
	f := &arguments.Func{Name: "f", Result: &arguments.Type{Kind: arguments.Int, Size: 4}, Params: []arguments.Param{
		{Name: "s", Type: &arguments.Type{Kind: arguments.String, Size: 8}}, {Name: "n", Type: &arguments.Type{Kind: arguments.Int, Size: 4}}}}
	c, err := arguments.Plan(f, arguments.AMD64, arguments.Entries|arguments.Exits, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// capturedTrace writes a trace of functions f, as captureText has it, and g, of which nothing is captured.
func capturedTrace(t testing.TB, write func(k *TaskWriter)) *Trace {
	t.Helper()
	text := captureText(t)
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(Image{ID: 7, Path: "/bin/a", Sites: 2}); err != nil {
		t.Fatal(err)
	}
	k := w.Task(TaskID{PID: 1, TID: 1, Image: 7, Comm: "a"})
	write(k)
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, EventsFile), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	err = names.Write(&b, &names.Table{Funcs: []names.Func{{ID: 1, Addr: 0x10, Name: "f"}, {ID: 2, Addr: 0x20, Name: "g"}},
		Captures: map[uint32]string{1: text}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ImageID(7).String()+SymExt), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// capturedText is every call of a trace with what was captured.
func capturedText(t testing.TB, tr *Trace) string {
	t.Helper()
	var out []string
	err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		c := tr.Capture(ev)
		s := ev.Kind.String() + " " + tr.Label(ev.Func)
		if ev.Args != nil {
			s += "(" + string(c.AppendArguments(nil, ev.Args.Words, ev.Args.Memory())) + ")"
			if ev.Args.Open {
				s += " open"
			}
		}
		if ev.Result != nil {
			s += " = " + string(c.Result.AppendText(nil, ev.Result.Words, ev.Result.Memory()))
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// TestCaptured: each end of a call has what was captured of it, a leaf's entry both, and other readers see the calls alone.
func TestCaptured(t *testing.T) {
	text := Data{Arg: 0, Flags: DataString, Asked: 64, Address: 0x1000, Bytes: []byte("abc")}
	tr := capturedTrace(t, func(k *TaskWriter) {
		k.EnterWith(1000, 1, []uint64{0x1000, 3}, text)
		k.Enter(1001, 2)
		k.Exit(1002, 2)
		k.EnterWith(1003, 1, []uint64{0x2000, 4}, Data{Arg: 0, Flags: DataString | DataUnreadable, Asked: 64, Address: 0x2000})
		k.ExitWith(1004, 1, []uint64{1<<32 | 7})
		k.ExitWith(1005, 1, []uint64{8})
	})
	want := `entry f("abc", 3)
entry g
exit g
entry f(<0x2000>, 4) = 7
exit f = 7
exit f = 8`
	if got := capturedText(t, tr); got != want {
		t.Errorf("got\n%s", got)
	}
	r, err := tr.Report(ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r) != 2 || r[0].Calls+r[1].Calls != 3 {
		t.Errorf("%+v", r)
	}
}

// TestCapturedOpen: a record that was cut by a kill is shown as such, and what lies behind is not taken for its payload.
func TestCapturedOpen(t *testing.T) {
	tr := capturedTrace(t, func(k *TaskWriter) {
		k.Enter(1000, 1)
		k.word(1000, format.Record{Type: format.RecArgs, Words: 2, Open: true}.ID())
		k.word(0, 0)
		k.word(0, 0)
		k.Enter(1001, 2)
	})
	want := `entry f(<unknown>, <unknown>) open
entry g
unfinished g
unfinished f`
	if got := capturedText(t, tr); got != want {
		t.Errorf("got\n%s", got)
	}
}

// TestReportValues: calls are counted by an argument, or by the result, also where they are nested.
func TestReportValues(t *testing.T) {
	tr := capturedTrace(t, func(k *TaskWriter) {
		k.EnterWith(1000, 1, []uint64{0, 3})
		k.EnterWith(1010, 1, []uint64{0, 4})
		k.ExitWith(1020, 1, []uint64{1})
		k.EnterWith(1030, 1, []uint64{0, 3})
		k.ExitWith(1040, 1, []uint64{2})
		k.ExitWith(1050, 1, []uint64{1})
		k.Enter(1060, 1) // of which nothing was captured
		k.Exit(1070, 1)
		k.EnterWith(1080, 1, []uint64{0, 9}) // which does not end
	})
	text := func(o ValueOptions) string {
		rows, err := tr.ReportValues(o)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range rows {
			out = append(out, fmt.Sprintf("%s %s: %d calls, %d, %d to %d", tr.Label(r.Func), r.Value, r.Calls, r.Sum, r.Min, r.Max))
		}
		return strings.Join(out, "\n")
	}
	for _, c := range []struct {
		o    ValueOptions
		want string
	}{
		{ValueOptions{Name: "n"}, "f 3: 2 calls, 60, 10 to 50\nf 4: 1 calls, 10, 10 to 10\nf 9: 1 calls, 0, 0 to 0"},
		{ValueOptions{Name: "arg2", When: func(ev *Event) bool { return ev.Args.Words[1] == 4 }}, "f 4: 1 calls, 10, 10 to 10"},
		{ValueOptions{Name: ResultName}, "f 1: 2 calls, 60, 10 to 50\nf 2: 1 calls, 10, 10 to 10"},
		{ValueOptions{Name: "none"}, ""},
		{ValueOptions{Name: "n", Match: func(id FuncID) bool { return id.ID == 2 }}, ""},
	} {
		if got := text(c.o); got != c.want {
			t.Errorf("%+v:\n%s", c.o, got)
		}
	}
}
