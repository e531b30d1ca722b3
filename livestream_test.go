//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// TestStreamAttached: a stream of a process that runs has every event once, or counts it; the process ends as it would.
func TestStreamAttached(t *testing.T) {
	program := start(t, buildAttached(t))
	var s *fentry.Stream
	entries, exits, looks := 0, 0, 0
	seen := func(ev *trace.Event) error {
		switch ev.Kind {
		case trace.Entry:
			entries++
		case trace.Exit:
			exits++
		}
		return nil
	}
	look := func(*trace.Trace, int64) { looks++ }
	failed := make(chan error, 1)
	dir := t.TempDir()
	res, err := fentry.Attach(context.Background(), []int{program.cmd.Process.Pid}, fentry.Options{
		Dir: filepath.Join(dir, "fentry.data"), Buffer: 2 << 20, Logf: t.Logf, Overhead: -1, NoSwitches: true,
		Live: func(l *fentry.Live) {
			s = l.Stream(t.TempDir(), trace.Options{})
			go func() {
				for looks < 20 || entries < 1000 {
					waiting, err := s.Waiting()
					if err == nil && waiting {
						err = s.Next(look, seen)
					}
					if err != nil {
						failed <- err
						l.End()
						return
					}
					time.Sleep(time.Millisecond)
				}
				l.End()
				for !errors.Is(s.Next(look, seen), session.ErrOver) {
					time.Sleep(time.Millisecond)
				}
				failed <- nil
			}()
		},
	})
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if err := s.End(res, look, seen); err != nil {
		t.Fatal(err)
	}
	// Exits that are told with their entries are counted with them, so these may be a few more.
	all := res.Events + res.Lost + res.Overwrote
	if visited := uint64(entries + exits); visited+s.Skipped > all || visited+s.Skipped+uint64(looks)*64 < all {
		t.Errorf("%d events visited and %d skipped of %d in %d looks", visited, s.Skipped, all, looks)
	}
	t.Logf("%d entries, %d exits, %d skipped, %d looks", entries, exits, s.Skipped, looks)
	program.end(t, 7, "right\n")
}

// TestStreamWaiting: a stream says whether there is anything to visit: as soon as there is, and not for long afterwards.
func TestStreamWaiting(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("processes are attached to on x86-64")
	}
	program := exec.Command(testtool.Compile(t, "asked", `#include <unistd.h>
__attribute__((noipa)) char asked(char c) { __asm__("nop; nop; nop; nop; nop"); return c; }
int main(void) {
	for (char c = 'r'; write(1, &c, 1) == 1 && read(0, &c, 1) == 1; )
		c = asked(c);
}
`, "-O2"))
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		program.Wait()
	}()
	answer := make([]byte, 1)
	if _, err := out.Read(answer); err != nil {
		t.Fatal(err)
	}
	only, err := record.NewFilter([]string{"asked"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	ask := func(s *fentry.Stream) error {
		for i := range 5 {
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				waiting, err := s.Waiting()
				if err != nil {
					return err
				}
				if !waiting {
					break
				}
				if time.Now().After(deadline) {
					return fmt.Errorf("after %d calls there is always something to visit", i)
				}
				if err := s.Next(func(*trace.Trace, int64) {}, func(ev *trace.Event) error {
					if ev.Kind == trace.Entry {
						calls++
					}
					return nil
				}); err != nil {
					return err
				}
			}
			if calls != i {
				return fmt.Errorf("%d calls were visited of %d", calls, i)
			}
			_, err := in.Write([]byte{'a'})
			if err == nil {
				_, err = out.Read(answer)
			}
			if err != nil {
				return err
			}
			if waiting, err := s.Waiting(); err != nil || !waiting {
				return fmt.Errorf("after call %d: something to visit: %t, %v", i, waiting, err)
			}
		}
		return nil
	}
	failed := make(chan error, 1)
	_, err = fentry.Attach(context.Background(), []int{program.Process.Pid}, fentry.Options{
		Dir: filepath.Join(t.TempDir(), "fentry.data"), Buffer: 2 << 20, Logf: t.Logf, Overhead: -1, NoSwitches: true,
		Plan: patch.Options{Select: only},
		Live: func(l *fentry.Live) {
			dir := t.TempDir()
			go func() {
				failed <- ask(l.Stream(dir, trace.Options{}))
				l.End()
			}()
		},
	})
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Error(err)
	}
}

// TestLookAtEnd: whoever still looks at the buffer when the recording has ended is told so, and gets no other error.
func TestLookAtEnd(t *testing.T) {
	program := start(t, buildAttached(t), "one")
	// The copy of the buffer goes to a file that nobody can open before the recording is over.
	dir := t.TempDir()
	leased, err := os.Create(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(leased.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	_, err = fentry.Attach(context.Background(), []int{program.cmd.Process.Pid}, fentry.Options{
		Dir: filepath.Join(t.TempDir(), "fentry.data"), Buffer: 2 << 20, Logf: t.Logf, Overhead: -1, NoSwitches: true,
		Live: func(l *fentry.Live) {
			go func() {
				ended <- l.Snapshot(dir, 0)
			}()
			go func() {
				defer l.End()
				for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
					if kind, _ := unix.FcntlInt(leased.Fd(), unix.F_GETLEASE, 0); kind != unix.F_WRLCK {
						return // somebody wants to open it
					}
				}
			}()
		},
	})
	if err != nil && strings.Contains(err.Error(), "not permitted") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	leased.Close()
	if err := <-ended; !errors.Is(err, session.ErrOver) {
		t.Error(err)
	}
	program.end(t, 7, "right\n")
}
