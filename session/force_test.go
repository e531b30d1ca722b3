//go:build linux

package session

import (
	"bufio"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/trace"
)

// TestAlwaysEnds: SIGTERM and SIGINT end a recorder, whatever it waits for. Each state says so by a line on standard
// error; then signals come until the recorder has gone.
func TestAlwaysEnds(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := runfile.WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	plain := script("plain", "sleep 1000\n")
	asleep := script("asleep", "#!/bin/sh\necho asleep >&2\nexec sleep 1000\n")
	for _, tt := range []struct {
		name string
		r    recorderCmd
		argv []string
		most int  // signals, without those that may come before the last one has had its effect
		kept bool // there is a trace, with its end
	}{
		{"program that stops itself", recorderCmd{}, []string{"sh", "-c", `echo stopped >&2; kill -STOP $$`}, 2, false},
		{"program that ignores signals", recorderCmd{},
			[]string{"sh", "-c", `trap "" TERM INT; echo deaf >&2; exec sleep 1000`}, 2, false},
		{"emulator that never opens the program", recorderCmd{Memory: anyMemory(), Copy: asleep, Emulator: []string{asleep}},
			[]string{"sh"}, 3, false},
		{"symbols that take for ever", recorderCmd{Hang: "symbols"},
			[]string{fixture.CC(t, "testdata/pool"), "image", fifo}, 1, true},
		{"messages that nobody reads", recorderCmd{Hang: "log", Memory: anyMemory(), Path: plain}, []string{"plain"}, 3, false},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			t.Run(tt.name+", "+sig.String(), func(t *testing.T) {
				t.Parallel()
				r := tt.r
				r.Dir = ""
				cmd := r.command(t, tt.argv...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
				errs, err := cmd.StderrPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				defer unix.Kill(-cmd.Process.Pid, unix.SIGKILL) // the program, which lives on
				said, err := bufio.NewReader(errs).ReadString('\n')
				if err != nil {
					t.Fatalf("%q, %v", said, err)
				}
				gone := make(chan struct{})
				go func() { cmd.Process.Wait(); close(gone) }()
				n, limit := 0, time.After(5*time.Minute)
				for ended := false; !ended; {
					if err := cmd.Process.Signal(sig); err == nil {
						n++
					}
					select {
					case <-gone:
						ended = true
					case <-time.After(6 * time.Second): // longer than it takes to have an effect, on a busy machine, too
					case <-limit:
						t.Fatalf("lives after %d signals; it has said %q", n, said)
					}
				}
				if n > tt.most+2 {
					t.Errorf("%d signals", n)
				}
				if !tt.kept {
					return
				}
				b, err := os.ReadFile(filepath.Join(r.Dir, trace.EventsFile))
				if err != nil || len(b) < format.HeaderSize || le.Uint32(b[format.HClosed:]) != 1 {
					t.Errorf("%d bytes of events without an end, %v", len(b), err)
				}
			})
		}
	}
}

// TestSignalsCounted: what leaves something out comes after what ends the recording, however fast signals are.
func TestSignalsCounted(t *testing.T) {
	type step struct{ winding, giveUp, leave bool }
	for _, steps := range [][]step{
		{{false, false, false}, {false, false, false}, {false, false, true}},
		{{false, false, false}, {true, true, false}, {true, false, true}},
		{{true, true, false}, {true, false, true}},
	} {
		var c counter
		for i, s := range steps {
			if giveUp, leave := c.got(s.winding); giveUp != s.giveUp || leave != s.leave {
				t.Errorf("%v: signal %d: %t, %t", steps, i+1, giveUp, leave)
			}
		}
	}
}
