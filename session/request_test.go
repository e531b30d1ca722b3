//go:build linux

package session_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/session/internal/fixture"
)

// runShell runs a shell script in a session; symbols gets each image.
func runShell(t *testing.T, script string, symbols func(session.Image, io.Writer) error) session.Result {
	t.Helper()
	sh, err := session.LookPath("sh")
	if err != nil {
		t.Skip("needs sh (package dash)")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	res, err := session.Run(ctx, session.Options{
		Path: sh, Args: []string{"sh", "-c", script}, Dir: filepath.Join(t.TempDir(), "data"), Symbols: symbols,
		Logf: func(format string, args ...any) { t.Errorf(format, args...) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if res.Status != 0 {
		t.Fatalf("status %v", res.Status)
	}
	return res
}

// The symbols of a program that ends at once, and whose file is another one by then,
// are those of its file.
func TestImageOfShortProgram(t *testing.T) {
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	fixture.Patched(t, fixture.CC(t, "testdata/crowd", "-fpatchable-function-entry=5"), prog)
	want, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int32
	res := runShell(t, fmt.Sprintf("%s 1 1 && rm %[1]s && echo other >%[1]s", prog), func(im session.Image, _ io.Writer) error {
		seen.Add(1)
		// The drainer is faster than a shell, but it need not be.
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if b, err := os.ReadFile(prog); err == nil && string(b) == "other\n" {
				break
			}
		}
		f, err := im.Open()
		if err != nil {
			return err
		}
		defer f.Close()
		have, err := io.ReadAll(f)
		if err == nil && string(have) != string(want) {
			t.Errorf("the file has %d bytes, want %d: %.20q", len(have), len(want), have)
		}
		return err
	})
	if seen.Load() != 1 || res.Events != 2 || res.Lost != 0 {
		t.Errorf("%d images, %+v", seen.Load(), res)
	}
}

// Many processes ask at the same time, and all of them go on.
func TestManyRequests(t *testing.T) {
	prog := filepath.Join(t.TempDir(), "prog")
	fixture.Patched(t, fixture.CC(t, "testdata/crowd", "-fpatchable-function-entry=5"), prog)
	res := runShell(t, "for i in $(seq 60); do "+prog+" 1 5 & done; wait", nil)
	if res.Processes != 60 || res.Events != 60*10 || res.Lost != 0 {
		t.Errorf("%+v", res)
	}
}

// Programs that start while the recorder is stopped are held up once, as it might only be slow.
func TestRequestStopped(t *testing.T) {
	dir := t.TempDir()
	prog := filepath.Join(dir, "prog")
	fixture.Patched(t, fixture.CC(t, "testdata/crowd", "-fpatchable-function-entry=5"), prog)
	recorder := fixture.Build(t, "recorder", "go", "build", "-o", filepath.Join(fixture.Dir, "recorder"), "./testdata/recorder")
	options := filepath.Join(dir, "options")
	if err := os.WriteFile(options, fmt.Appendf(nil, `{"Dir": %q}`, filepath.Join(dir, "data")), 0o666); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("kill -STOP $PPID; for i in 0 1 2 3 4 5; do date +%%s%%N; %s 1 1; done >%s/began; kill -CONT $PPID", prog, dir)
	runShell(t, fmt.Sprintf("%s %s sh -c '%s'", recorder, options, script), nil)
	b, err := os.ReadFile(filepath.Join(dir, "began"))
	if err != nil {
		t.Fatal(err)
	}
	var began [6]int64
	for i, line := range strings.Fields(string(b)) {
		if _, err := fmt.Sscan(line, &began[i]); err != nil {
			t.Fatal(err)
		}
	}
	const limit = 2900 * time.Millisecond
	first, others := time.Duration(began[1]-began[0]), time.Hour // the shortest: the others may have waited for a processor
	for i := range len(began) - 2 {
		others = min(others, time.Duration(began[i+2]-began[i+1]))
	}
	if first < limit || others > limit {
		t.Errorf("the first program took %v, others %v at least; the limits are 3 s and 100 ms", first, others)
	}
}
