package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/export/formats"
	"github.com/fentry-dev/fentry/internal/sample"
)

// TestExportLinks: in a directory of another user's, that user's links do not say where files go; one's own do. What
// does not become complete is removed.
func TestExportLinks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make files of another user")
	}
	const nobody = 65534
	theirs := filepath.Join(t.TempDir(), "theirs")
	lake := filepath.Join(t.TempDir(), "lake")
	for _, dir := range []string{theirs, lake} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"their-link", "my-link"} {
		if err := os.Symlink(lake, filepath.Join(theirs, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"their-link", "."} {
		if err := os.Lchown(filepath.Join(theirs, name), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	src := export.From(sample.Small(t))
	empty := func() bool {
		entries, err := os.ReadDir(lake)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries) == 0
	}
	_, err := writeDir(filepath.Join(theirs, "their-link"), formats.Named("parquet"), src)
	if err == nil || !strings.Contains(err.Error(), "is a symbolic link of another user") || !empty() {
		t.Errorf("through their link: %v", err)
	}
	if _, err := writeDir(filepath.Join(theirs, "my-link"), formats.Named("parquet"), src); err != nil || empty() {
		t.Errorf("through a link of one's own: %v", err)
	}
	if _, err := writeDir(filepath.Join(theirs, "t.uftrace"), formats.Named("uftrace"), src); err != nil {
		t.Error(err)
	}
	broken := *formats.Named("uftrace")
	broken.WriteDir = func(root *os.Root, _ *export.Source) (export.Summary, error) {
		return export.Summary{}, root.Mkdir("t.uftrace/../..", 0o777) // out of it
	}
	if _, err := writeDir(filepath.Join(theirs, "broken"), &broken, src); err == nil {
		t.Error("a directory outside was made")
	}
	left, err := filepath.Glob(filepath.Join(theirs, ".fentry-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(theirs, "t.uftrace", "info")); err != nil {
		t.Error(err)
	}
}
