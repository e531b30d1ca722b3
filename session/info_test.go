//go:build linux

package session

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
)

// The trace says how often the counter ticks, in its header and in info.json, 0 if the kernel does not tell.
func TestFrequency(t *testing.T) {
	hz := clock.Hz()
	dir := filepath.Join(t.TempDir(), "d")
	r := recorderCmd{Dir: dir}
	r.run(t, fixture.CC(t, "testdata/pool"), "threads", "1", "1")
	head, err := os.ReadFile(filepath.Join(dir, "events"))
	if err != nil || len(head) < format.HeaderSize || le.Uint64(head[format.HCounterHZ:]) != hz {
		t.Errorf("the header does not say %d: %v", hz, err)
	}
	info, err := os.ReadFile(filepath.Join(dir, "info.json"))
	if err != nil || hz != 0 && !strings.Contains(string(info), strconv.FormatUint(hz, 10)) {
		t.Errorf("info.json does not say %d: %v: %s", hz, err, info)
	}
}

// A directory that somebody renames keeps what it is written, and is found again;
// messages name the place it has then.
func TestRenamedDirectory(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	d, err := tracedir.Create("d")
	if err != nil {
		t.Fatal(err)
	}
	d.Commit()
	if name, moved := d.Where(); name != "d" || moved {
		t.Errorf("in %q, moved %t", name, moved)
	}
	if err := os.Rename("d", "e"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("d", 0o777); err != nil {
		t.Fatal(err)
	}
	s := session{dir: d}
	s.beginInfo()
	s.info.Command = []string{"first"}
	if err := d.WriteInfo(&s.info); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "e", "info.json")); err != nil || !strings.Contains(string(b), "first") {
		t.Errorf("%q, %v", b, err)
	}
	if name, moved := d.Where(); name != "e" || !moved {
		t.Errorf("in %q, moved %t", name, moved)
	}
	s.endInfo()
	if s.res.Dir != "e" || s.res.WriteError != nil {
		t.Errorf("result %q, %v", s.res.Dir, s.res.WriteError)
	}
}

// A directory that is removed meanwhile is not claimed to hold the trace.
func TestRemovedDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	d, err := tracedir.Create("d")
	if err != nil {
		t.Fatal(err)
	}
	d.Commit()
	if err := os.RemoveAll("d"); err != nil {
		t.Fatal(err)
	}
	s := session{dir: d}
	if err := d.WriteInfo(&s.info); err == nil || !strings.HasPrefix(err.Error(), "d/info.json: ") {
		t.Errorf("message %v", err)
	}
	s.endInfo()
	if want := "d: was removed while it was being recorded; the trace is gone"; s.res.Dir != "" || s.res.WriteError == nil || s.res.WriteError.Error() != want {
		t.Errorf("result %q, %v", s.res.Dir, s.res.WriteError)
	}
}
