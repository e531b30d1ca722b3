package ndjson

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/trace"
)

// FuzzNames: whatever names there are, each line is JSON, and has them.
func FuzzNames(f *testing.F) {
	f.Add("/bin/worker", "worker", "f")
	f.Add("/bin/a \"b\"\\\n\x1b", "x\x07\xff", "ns::f<char, '\"'>(int)\t\u2028")
	f.Add("", "", "\x00\xed\xa0\x80")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, path, comm, name string) {
		var b bytes.Buffer
		w, err := trace.NewWriter(&b, trace.Header{Counter: 1000, CounterHz: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WriteImage(trace.Image{ID: testImage, Path: path, Sites: 9}); err != nil {
			t.Fatal(err)
		}
		k := w.Task(trace.TaskID{PID: 1, TID: 1, Image: testImage, Comm: comm})
		k.Enter(1000, 1)
		k.Enter(1010, 2)
		k.Comm(1020, comm)
		k.Flush()
		if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if err := names.Write(&b, &names.Table{Funcs: []names.Func{{ID: 1, Addr: 0x401000, Name: name}}}); err != nil {
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
		valid := func(s string) string { // a replacement character a byte
			var b strings.Builder
			for _, r := range s {
				b.WriteRune(r)
			}
			return b.String()
		}
		out := textOf(t, tr)
		if n := strings.Count(out, "\n"); n != 5 || strings.ContainsFunc(out, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) {
			t.Errorf("%d lines: %q", n, out)
		}
		for line := range strings.Lines(out) {
			var e struct{ Func, Image, Comm, Caller string }
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if e.Func != "" && e.Image != valid(strings.ReplaceAll(path, "\x00", "")) || e.Caller != "" && e.Caller != valid(name) {
				t.Errorf("%+v from path %q, name %q", e, path, name)
			}
		}
	})
}
