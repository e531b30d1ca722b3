package formats

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/internal/sample"
	"github.com/fentry-dev/fentry/trace"
)

var update = flag.Bool("update", false, "write the files in testdata")

// TestSmall: the text formats of a trace with one of everything, letter by letter, and what each leaves out.
func TestSmall(t *testing.T) {
	tr := sample.Small(t)
	for _, f := range All {
		var out bytes.Buffer
		sum, err := write(t, &f, &out, export.From(tr))
		if err != nil {
			t.Fatal(f.Name, err)
		}
		if f.Binary {
			out.Reset() // clients read these
		}
		for _, l := range sum.Left {
			out.WriteString("left out: ")
			out.WriteString(l.What)
			out.WriteString(strings.Repeat(".", int(l.Count)))
			out.WriteByte('\n')
		}
		file := filepath.Join("testdata", "small."+f.Name)
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Name, diff)
		}
	}
}

// write writes a file, or a directory that is thrown away.
func write(t *testing.T, f *Format, w io.Writer, s *export.Source) (export.Summary, error) {
	if f.WriteDir == nil {
		return f.Write(w, s)
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	return f.WriteDir(root, s)
}

// FuzzEvents: whatever a trace has, each format is written, JSON is JSON, and text controls no terminal.
func FuzzEvents(f *testing.F) {
	seed, err := os.ReadFile(filepath.Join(sample.Small(f).Dir, trace.EventsFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(bytes.ReplaceAll(seed, []byte("worker"), []byte("w\x1b\n\xff;")))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, events []byte) {
		if err := os.WriteFile(filepath.Join(dir, trace.EventsFile), events, 0o666); err != nil {
			t.Fatal(err)
		}
		tr, err := trace.Open(dir)
		if err != nil {
			return
		}
		defer tr.Close()
		for i := range All {
			f := &All[i]
			var out bytes.Buffer
			if _, err := write(t, f, &out, export.From(tr)); err != nil {
				continue
			}
			if strings.HasSuffix(f.Suffixes[0], ".json") && !json.Valid(out.Bytes()) {
				t.Errorf("%s: not JSON:\n%s", f.Name, out.Bytes())
			}
			if f.Binary {
				continue
			}
			for l := range strings.Lines(out.String()) {
				for _, r := range strings.TrimSuffix(l, "\n") {
					if r != utf8.RuneError && !safetext.Safe(r) {
						t.Errorf("%s: a line has %U: %q", f.Name, r, l)
					}
				}
			}
		}
	})
}
