package ehframe

import (
	"os"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// ofInstalled calls check with the frames of images as Debian installs them, those that there are.
func ofInstalled(t *testing.T, check func(name string, f *elfio.File, table *Table)) {
	t.Helper()
	seen := 0
	for _, name := range []string{"/usr/bin/git", "/usr/bin/python3.11", "/bin/bash", "/usr/bin/gdb",
		"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/lib/x86_64-linux-gnu/libc.so.6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		table, err := Read(f)
		if err != nil || table.Len() == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		seen++
		check(name, f, table)
	}
	if seen == 0 {
		t.Skip("none of the images is installed")
	}
}
