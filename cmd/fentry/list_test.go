package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// How to compile an image is no advice where it is left alone because of what it is.
func TestListLoader(t *testing.T) {
	loader := map[string]string{"amd64": "/lib64/ld-linux-x86-64.so.2", "arm64": "/lib/ld-linux-aarch64.so.1"}[runtime.GOARCH]
	if _, err := os.Stat(loader); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	link(t, dir)
	_, said := fentryRun(t, dir, 0, "list", loader)
	if !strings.Contains(said, "loader-internal") || strings.Contains(said, "compile with") {
		t.Errorf("%s", said)
	}
}
