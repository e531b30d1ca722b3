//go:build linux

package fentry_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestMain(m *testing.M) {
	code := testtool.Main(m)
	if builtRecorder.dir != "" {
		os.RemoveAll(builtRecorder.dir)
	}
	os.Exit(code)
}

// messages are those that Logf was called with, from whatever goroutine.
type messages struct {
	mu   sync.Mutex
	list []string
}

func (m *messages) logf(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, fmt.Sprintf(format, args...))
}

// builtRecorder is fentry, which is compiled for all tests together.
var builtRecorder struct {
	once sync.Once
	dir  string
	err  error
}

// buildRecorder compiles fentry.
func buildRecorder(t *testing.T) string {
	t.Helper()
	b := &builtRecorder
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "fentry-recorder-"); b.err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", filepath.Join(b.dir, "fentry"), "./cmd/fentry").CombinedOutput(); err != nil {
			b.err = fmt.Errorf("%v\n%s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return filepath.Join(b.dir, "fentry")
}
