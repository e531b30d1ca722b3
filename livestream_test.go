//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry"
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
			s = l.Stream(t.TempDir(), nil)
			go func() {
				for looks < 20 || entries < 1000 {
					if err := s.Next(look, seen); err != nil {
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
