//go:build linux

package fentry_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// options are those of a run whose trace nobody reads.
func options(t *testing.T) fentry.Options {
	return fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf}
}

// A command's streams, files and directory are the program's, as with os/exec.
func TestRunLikeExec(t *testing.T) {
	work := t.TempDir()
	extra, err := os.Open("run_test.go")
	if err != nil {
		t.Fatal(err)
	}
	defer extra.Close()
	var both [2]bytes.Buffer
	for i, run := range []func(*exec.Cmd) error{
		func(c *exec.Cmd) error { return c.Run() },
		func(c *exec.Cmd) error {
			res, err := fentry.Run(context.Background(), c, options(t))
			if err == nil && (!res.Ended || res.Status.ExitStatus() != 3 || res.CopyError != nil || res.WriteError != nil) {
				t.Errorf("%+v", res)
			}
			return err
		},
	} {
		cmd := exec.Command("sh", "-c", "cat; echo error >&2; pwd; head -1 <&4; echo $FROM $0; test -e /dev/fd/3 || exit 3", "name")
		cmd.Stdin = strings.NewReader("input\n")
		cmd.Stdout, cmd.Stderr = &both[i], &both[i]
		cmd.Dir = work
		cmd.ExtraFiles = []*os.File{nil, extra}
		cmd.Env = []string{"FROM=environment", "PATH=" + os.Getenv("PATH")}
		if err := run(cmd); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		extra.Seek(0, io.SeekStart)
	}
	want := "input\nerror\n" + work + "\n//go:build linux\nenvironment name\n"
	if both[0].String() != want || both[1].String() != want {
		t.Errorf("os/exec: %q\nfentry:  %q\nwant:    %q", both[0].String(), both[1].String(), want)
	}
}

// Without streams, the program has /dev/null, and input that never comes keeps nobody waiting.
func TestRunStreams(t *testing.T) {
	never, w := io.Pipe()
	defer w.Close()
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "readlink /proc/self/fd/0 /proc/self/fd/2; echo lost >&2")
	cmd.Stdout = &out
	if _, err := fentry.Run(context.Background(), cmd, options(t)); err != nil || out.String() != "/dev/null\n/dev/null\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	cmd = exec.Command("sh", "-c", "echo done")
	cmd.Stdin, cmd.Stdout = never, failing{}
	res, err := fentry.Run(context.Background(), cmd, options(t))
	if err != nil || !errors.Is(res.CopyError, errFull) {
		t.Errorf("%+v, %v", res, err)
	}
}

var errFull = errors.New("full")

// failing cannot be compared: two of them are two writers.
type failing struct{ _ []byte }

func (failing) Write([]byte) (int, error) { return 0, errFull }

// A program in which nothing can be traced runs, and leaves no trace: one that is there stays.
func TestRunNothing(t *testing.T) {
	o := options(t)
	o.Plain = record.PlainNone
	for _, exists := range []bool{false, true} {
		if exists {
			if err := os.Mkdir(o.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(o.Dir, trace.EventsFile), []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		res, err := fentry.Run(context.Background(), exec.Command("sh", "-c", "exit 3"), o)
		if err != nil || res.Status.ExitStatus() != 3 {
			t.Fatalf("%+v, %v", res, err)
		}
		if !res.Empty || res.Dir != "" || res.Traced != 0 || !strings.Contains(res.Untraced, "can be traced") {
			t.Errorf("%+v", res)
		}
		b, err := os.ReadFile(filepath.Join(o.Dir, trace.EventsFile))
		if exists && string(b) != "old" || !exists && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a trace was there: %v; now %q, %v", exists, b, err)
		}
		if _, err := os.Stat(o.Dir + ".old"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a trace was there: %v; now there is an older one: %v", exists, err)
		}
	}
}

func TestRunRefused(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("exit 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	attr := exec.Command("sh")
	attr.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		cmd  *exec.Cmd
		is   error
		want string
	}{
		{exec.Command("no-such-program-here"), exec.ErrNotFound, "no-such-program-here"},
		{exec.Command("/nonexistent/prog"), session.ErrNotFound, "/nonexistent/prog"},
		{exec.Command(script), session.ErrNotExecutable, script},
		{attr, nil, "SysProcAttr is not supported"},
		{exec.Command(broken), nil, broken + ": "},
	} {
		o := options(t)
		_, err := fentry.Run(context.Background(), c.cmd, o)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%v: %v, want %s", c.cmd, err, c.want)
		}
		if _, err := os.Stat(o.Dir); err == nil {
			t.Errorf("%v: leaves a trace", c.cmd)
		}
	}
}

// Runs at the same time take turns, each with a trace of its own; one that shall not wait any more does not run.
func TestRunParallel(t *testing.T) {
	in, hold := io.Pipe()
	first := make(chan error, 1)
	var out syncBuffer
	go func() {
		cmd := exec.Command("sh", "-c", "echo started; cat")
		cmd.Stdin, cmd.Stdout = in, &out
		_, err := fentry.Run(context.Background(), cmd, options(t))
		first <- err
	}()
	for !strings.Contains(out.String(), "started") {
		select {
		case err := <-first:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	o := options(t)
	if _, err := fentry.Run(ctx, exec.Command("true"), o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second run: %v", err)
	}
	second := make(chan error, 1)
	go func() { _, err := fentry.Run(context.Background(), exec.Command("true"), o); second <- err }()
	hold.Close()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
}

// syncBuffer is what one goroutine writes and another one reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// What cannot be traced runs all the same, and says why it is not.
func TestRunUntraced(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := runfile.WriteFile(script, []byte("#!/bin/sh\nexit 5\n")); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		status int
		why    string
	}{script: {5, "not an ELF program"}, empty: {0, "empty file"}} {
		p, err := fentry.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if p.Untraced != want.why {
			t.Errorf("%s: %q, want %q", path, p.Untraced, want.why)
		}
		var said string
		o := options(t)
		o.NoInherit = true
		o.Logf = func(format string, args ...any) { said += strings.TrimSpace(format) }
		res, err := p.Run(context.Background(), exec.Command(path), o)
		if err != nil || res.Status.ExitStatus() != want.status || res.Traced != 0 || !strings.Contains(said, "runs untraced") {
			t.Errorf("%s: %+v, %v, said %q", path, res, err, said)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
