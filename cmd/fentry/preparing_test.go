package main

import (
	"os"
	"strings"
	"testing"
)

// Which library a program waits for is shown on terminals only.
func TestPreparing(t *testing.T) {
	var b strings.Builder
	if a := (&app{stderr: &b}); a.preparing() != nil {
		t.Error("shown where there is no terminal")
	}
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("needs a pseudo terminal: ", err)
	}
	defer tty.Close()
	if a := (&app{stderr: tty}); a.preparing() == nil {
		t.Error("not shown on a terminal")
	}
	if a := (&app{stderr: tty, quiet: true}); a.preparing() != nil {
		t.Error("shown with -q")
	}
}
