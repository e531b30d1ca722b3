package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// fentry is the built command, cache where it keeps what it can find again.
var fentry, cache string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "fentry-e2e-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		cache = filepath.Join(dir, "cache")
		if fentry = os.Getenv("FENTRY_BIN"); fentry != "" { // an installed one
			return testtool.Main(m)
		}
		fentry = filepath.Join(dir, "fentry")
		build := exec.Command("go", "build", "-o", fentry, "../cmd/fentry")
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "go build ./cmd/fentry:", err)
			fentry = "" // each test that needs it fails; the fixtures' own checks still run
		}
		return testtool.Main(m)
	}())
}

func needFentry(t testing.TB) {
	t.Helper()
	if fentry == "" {
		t.Fatal("the fentry command does not build")
	}
}
