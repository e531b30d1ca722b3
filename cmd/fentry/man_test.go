package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// The pages in docs/man are those the command table makes, and the formatters
// have nothing to say about them.
func TestManPages(t *testing.T) {
	fresh := t.TempDir()
	var stderr bytes.Buffer
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: &stderr, lookupEnv: func(string) (string, bool) { return "", false }}
	if code := run([]string{"__man", fresh}, a); code != 0 {
		t.Fatalf("status %d: %s", code, stderr.String())
	}
	made, err := filepath.Glob(filepath.Join(fresh, "*.1"))
	if err != nil || len(made) < 8 {
		t.Fatalf("%d pages, %v", len(made), err)
	}
	const dir = "../../docs/man"
	kept, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != len(made) {
		t.Errorf("%d pages in %s, %d are made: go generate ./cmd/fentry", len(kept), dir, len(made))
	}
	for _, page := range made {
		name := filepath.Base(page)
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			have, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatalf("%v: go generate ./cmd/fentry", err)
			}
			if !bytes.Equal(have, want) {
				t.Errorf("%s/%s is not what the command table makes: go generate ./cmd/fentry", dir, name)
			}
			if bytes.Contains(want, []byte("@")) && bytes.Contains(want, []byte("S@\n")) {
				t.Errorf("a mark was left in the text")
			}
			lint(t, page, "man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page)
			lint(t, page, "mandoc", "-Tlint", "-Wstyle", page)
		})
	}
}

func lint(t *testing.T, page, tool string, args ...string) {
	t.Helper()
	if !testtool.Have(t, tool) {
		return
	}
	cmd := exec.Command(tool, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "MANROFFSEQ=", "MANWIDTH=80")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	said := stderr.String()
	if tool == "mandoc" {
		said += out.String()
	}
	if err != nil || strings.TrimSpace(said) != "" {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, said)
	}
}
