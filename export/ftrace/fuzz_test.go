package ftrace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// FuzzNames: whatever programs and traces call things, the text has the lines it has with other names, and nothing in it
// controls a terminal.
func FuzzNames(f *testing.F) {
	f.Add("/bin/worker", "worker")
	f.Add("/bin/a\x1b[2Jb\nc", "x\x1b]0;y\x07")
	f.Add("/bin/\u009b31m", "\u009b31m\r\x7f")
	f.Add("", "")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, path, comm string) {
		lines := func(path, comm string) []string {
			var b bytes.Buffer
			w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, Monotonic: 12e9, CounterHz: 1e9})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.WriteImage(trace.Image{ID: testImage, Path: path, Sites: 9}); err != nil {
				t.Fatal(err)
			}
			k := w.Task(trace.TaskID{PID: 1, TID: 1, Image: testImage, Comm: comm})
			k.Enter(1000, 1)
			k.Enter(1010, 2)
			k.Exit(1020, 2)
			k.Enter(1030, 3)
			k.Comm(1040, comm)
			k.Exit(1050, 3)
			k.Exit(1060, 1)
			k.Flush()
			if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
			// The names of two of the functions are known; names of symbols are made plain by whoever opens the trace.
			sym := &names.Table{Funcs: []names.Func{{ID: 2, Addr: 0x401000, Name: "known"}, {ID: 3, Addr: 0x401100}}}
			b.Reset()
			if err := names.Write(&b, sym); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, testImage.String()+trace.SymExt), b.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
			tr, err := trace.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			b.Reset()
			g := NewGraph(&b, tr, GraphOptions{Proc: true})
			fn := NewFunction(&b, tr, FunctionOptions{})
			if err := tr.Walk(trace.WalkOptions{}, g.Event); err != nil {
				t.Fatal(err)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			if err := tr.Walk(trace.WalkOptions{}, fn.Event); err != nil {
				t.Fatal(err)
			}
			if err := fn.Close(); err != nil {
				t.Fatal(err)
			}
			return strings.Split(b.String(), "\n")
		}
		got := lines(path, comm)
		if want := lines("/bin/x", "x"); len(got) != len(want) {
			t.Errorf("%d lines, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		}
		for _, l := range got {
			if i := strings.IndexFunc(l, unicode.IsControl); i >= 0 {
				t.Errorf("%q", l)
			}
		}
	})
}
