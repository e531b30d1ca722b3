package main

import (
	"errors"
	"fmt"
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

// TestExportErrors: errors name files by the path that was asked for, and nothing is left of what did not become complete.
func TestExportErrors(t *testing.T) {
	src, dir := export.From(sample.Small(t)), t.TempDir()
	fails := map[string]func(*os.Root) error{
		"out/file: file already closed": func(root *os.Root) error {
			f, err := root.Create("file")
			if err != nil {
				return err
			}
			f.Close()
			_, err = f.Write([]byte("x"))
			return errors.Join(fmt.Errorf("a table: %w", err), root.Remove("file"))
		},
		"mkdirat out/a/b: no such file or directory": func(root *os.Root) error { return root.Mkdir("a/b", 0o777) },
		"open a/b: no such file or directory": func(*os.Root) error {
			_, err := os.Open("a/b") // of the trace
			return err
		},
	}
	for want, fail := range fails {
		for _, adds := range []bool{false, true} {
			f := formats.Format{Adds: adds, WriteDir: func(root *os.Root, _ *export.Source) (export.Summary, error) {
				return export.Summary{}, fail(root)
			}}
			_, err := writeDir(filepath.Join(dir, "out"), &f, src)
			if err == nil || !strings.HasSuffix(strings.ReplaceAll(err.Error(), dir+"/", ""), want) {
				t.Errorf("%v, want %s", err, want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: left: %v, %v", want, left, err)
			}
		}
	}
	// A file is where one of the tables is to be.
	lake := filepath.Join(dir, "lake")
	if err := errors.Join(os.Mkdir(lake, 0o777), os.WriteFile(filepath.Join(lake, "tasks"), nil, 0o666)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"parquet", "csv-tables"} {
		_, err := writeDir(lake, formats.Named(name), src)
		if err == nil || !strings.Contains(err.Error(), lake+"/tasks") {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadDir(lake); err != nil || len(left) != 1 {
			t.Errorf("%s: left: %v, %v", name, left, err)
		}
	}
}
