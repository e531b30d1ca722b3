package mcount

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What runs before the other commands are initialised is what changes objects and says nothing; all else is declined
// and left to the command's own parser.
func TestEarly(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	opts := func(string) (string, bool) { return "--compat", true }
	missing := filepath.Join(t.TempDir(), "none.o")
	for _, tt := range []struct {
		args string
		env  func(string) (string, bool)
		ok   bool
		want int
		says string
	}{
		{"fentry mcount FILE", none, true, 1, "fentry: FILE: no such file or directory\n"},
		{"fentry mcount --compat --keep-calls -w -j2 FILE", none, true, 1, "fentry: FILE: no such file or directory\n"},
		{"fentry mcount -- FILE", none, true, 1, "fentry: FILE: no such file or directory\n"},
		{"/usr/bin/recordmcount -w FILE", none, true, 1, "FILE: no such file or directory\nFILE: failed\n"},
		{"recordmcount", none, true, 2, "usage: recordmcount [-w] file.o...\n"},
		{"fentry mcount FILE", opts, false, 0, ""},
		{"fentry mcount", none, false, 0, ""},
		{"fentry mcount --compat", none, false, 0, ""},
		{"fentry mcount --list FILE", none, false, 0, ""},
		{"fentry mcount --nop FILE", none, false, 0, ""},
		{"fentry mcount -MD FILE", none, false, 0, ""},
		{"fentry mcount -j-1 FILE", none, false, 0, ""},
		{"fentry mcount -j FILE", none, false, 0, ""},
		{"fentry mcount -h", none, false, 0, ""},
		{"fentry list FILE", none, false, 0, ""},
		{"fentry", none, false, 0, ""},
	} {
		var stdout, stderr bytes.Buffer
		args := strings.Fields(strings.ReplaceAll(tt.args, "FILE", missing))
		status, ok := Main(args, tt.env, &stdout, &stderr, nil)
		if says := strings.ReplaceAll(tt.says, "FILE", missing); status != tt.want || ok != tt.ok || stdout.Len() > 0 || stderr.String() != says {
			t.Errorf("%s: %d, %v, %q, %q", tt.args, status, ok, stdout.String(), stderr.String())
		}
	}
}

// Large files wait for the garbage collector's setting.
func TestEarlyLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large.a")
	if err := os.WriteFile(path, []byte("!<arch>\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	none := func(string) (string, bool) { return "", false }
	for _, size := range []int64{8, collectSize} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"fentry mcount", "recordmcount"} {
			var stdout, stderr bytes.Buffer
			args := append(strings.Fields(name), path)
			called := false
			if _, ok := Main(args, none, &stdout, &stderr, nil); ok != (size < collectSize) {
				t.Errorf("%s, %d bytes: %v", name, size, ok)
			}
			late := &ForLarge{Collect: func() { called = true }}
			if _, ok := Main(args, none, &stdout, &stderr, late); !ok || called != (size >= collectSize) {
				t.Errorf("%s, %d bytes: %v, collect %v", name, size, ok, called)
			}
		}
	}
}

func TestEarlyOptions(t *testing.T) {
	var c Command
	files, ok := c.Parse([]string{"a.o", "--compat", "--all-exec", "--keep-calls", "--strip", "--keep-links", "--keep-time", "--sync", "--warn", "-j3", "--", "-b.o"})
	o := &c.Options
	if !ok || !slices.Equal(files, []string{"a.o", "-b.o"}) || c.Jobs != 3 || !c.Warn {
		t.Errorf("%q, %v, %d jobs, warn %v", files, ok, c.Jobs, c.Warn)
	}
	for i, set := range []bool{o.Objects.Compat, o.Objects.AllExec, o.Objects.KeepCalls, o.Strip, o.KeepLinks, o.KeepTime, o.Sync} {
		if !set {
			t.Errorf("option %d was not taken", i)
		}
	}
}

// A file that is no object fails, is named, and stays as it is; the others are done.
func TestRunGoesOn(t *testing.T) {
	dir := t.TempDir()
	text, empty := filepath.Join(dir, "text.o"), filepath.Join(dir, "empty.a")
	for name, b := range map[string]string{text: "not an object\n", empty: "!<arch>\n"} {
		if err := os.WriteFile(name, []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	c := Command{DepAuto: true}
	ok, err := c.Run([]string{text, empty}, &stdout, &stderr)
	if ok || err != nil || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "fentry: "+text+": ") {
		t.Errorf("%v, %v, %q, %q", ok, err, stdout.String(), stderr.String())
	}
	if b, err := os.ReadFile(empty + ".d"); err != nil || string(b) != empty+":\n" {
		t.Errorf("dependencies %q, %v", b, err)
	}
	if _, err := os.Stat(text + ".d"); err == nil {
		t.Error("dependencies of a file that failed")
	}
}
