package formats

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// TestCaptured: arguments and results are in the formats that have a place for them, with ends of calls that are one event
// and that are two; the others of single calls say that they are left out.
func TestCaptured(t *testing.T) {
	tr := capturedTrace(t)
	for _, f := range All {
		var out bytes.Buffer
		sum, err := write(t, &f, &out, export.From(tr))
		if err != nil {
			t.Fatal(f.Name, err)
		}
		left := uint64(0)
		for _, l := range sum.Left {
			if l.What == "arguments and results" {
				left = l.Count
			}
		}
		var inside []string
		switch want := uint64(4); f.Name {
		case "chrome":
			inside = []string{`"name":"f","args":{"s":null,"n":-1}}`, `"args":{"retval":7}}`,
				`"ph":"X"`, `"name":"f","args":{"s":"\u003c0x10\u003e","n":3,"retval":8}}`}
		case "perfetto":
			inside = []string{"n", "-1", "NULL", "<0x10>", "retval", "8"}
		case "csv", "ctf", "speedscope", "tracedat", "uftrace":
			if left != want {
				t.Errorf("%s: %d left out, want %d", f.Name, left, want)
			}
			continue
		default:
			continue // of calls that are counted together
		}
		for _, s := range inside {
			if text := out.String(); !strings.Contains(text, s) && !strings.Contains(text, strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(s)) {
				t.Errorf("%s: no %s in\n%s", f.Name, s, text)
			}
		}
		if f.Name == "chrome" && !json.Valid(out.Bytes()) {
			t.Errorf("%s: not JSON", f.Name)
		}
		if left != 0 {
			t.Errorf("%s: %d left out", f.Name, left)
		}
	}
}

// capturedTrace has a call of f(char *s, int n) with another inside.
func capturedTrace(t *testing.T) *trace.Trace {
	number := &arguments.Type{Kind: arguments.Int, Size: 4}
	c, err := arguments.Plan(&arguments.Func{Name: "f", Result: number, Params: []arguments.Param{
		{Name: "s", Type: &arguments.Type{Kind: arguments.String, Size: 8}}, {Name: "n", Type: number}}},
		arguments.AMD64, arguments.Entries|arguments.Exits, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var b bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteImage(trace.Image{ID: 7, Path: "/bin/a", Sites: 1}); err != nil {
		t.Fatal(err)
	}
	k := w.Task(trace.TaskID{PID: 1, TID: 1, Image: 7, Comm: "a"})
	k.EnterWith(1000, 1, []uint64{0, 1<<32 - 1})
	k.EnterWith(1010, 1, []uint64{16, 3}, trace.Data{Flags: trace.DataString | trace.DataUnreadable, Asked: 64, Address: 16})
	k.ExitWith(1020, 1, []uint64{8})
	k.ExitWith(1030, 1, []uint64{7})
	if err := k.Flush(); err != nil {
		t.Fatal(err)
	}
	var sym bytes.Buffer
	if err := names.Write(&sym, &names.Table{Funcs: []names.Func{{ID: 1, Addr: 0x10, Name: "f"}}, Captures: map[uint32]string{1: string(text)}}); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{trace.EventsFile: b.Bytes(), trace.ImageID(7).String() + trace.SymExt: sym.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}
