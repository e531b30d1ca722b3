package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestTracePlace: -o can name the program, by its package if it is a test binary of Go's, as this one is.
func TestTracePlace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for pattern, want := range map[string]string{
		"fentry.data": "fentry.data", "50%": "50%", "a%%": "a%", "%%n": "%n",
		dir + "/x/%n":   dir + "/x/prog",
		dir + "/y%p/%n": fmt.Sprintf("%s/y%d/prog", dir, os.Getpid()),
	} {
		got, err := tracePlace(pattern, "/bin/prog")
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", pattern, got, err, want)
		}
		if parent := filepath.Dir(got); pattern[0] == '/' {
			if _, err := os.Stat(parent); err != nil {
				t.Errorf("%s: %v", pattern, err)
			}
		}
	}
	link := filepath.Join(dir, "other.test")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link: "github.com_fentry-dev_fentry_cmd_fentry.test", "/nowhere/a.test": "a.test",
	} {
		if got := programName(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
