//go:build linux

package tracedir

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// What a killed recorder has left is written by another process soon: a new recording to the same place waits for that. One
// whose recorder lives is not waited for.
func TestAwaitKeeper(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		recorder int
		waits    bool
	}{
		{"killed", ended.Process.Pid, true},
		{"alive", os.Getpid(), false},
		{"alone", 0, false}, // a program that has traced itself
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			head := make([]byte, format.HeaderSize)
			copy(head, format.FileMagic)
			le.PutUint32(head[format.HRecorder:], uint32(c.recorder))
			events := filepath.Join(path, trace.EventsFile)
			if err := os.WriteFile(events, head, 0o600); err != nil {
				t.Fatal(err)
			}
			keeper, err := os.Open(events)
			if err != nil {
				t.Fatal(err)
			}
			defer keeper.Close()
			if err := unix.Flock(int(keeper.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			const long = 200 * time.Millisecond
			if c.waits {
				time.AfterFunc(long, func() { keeper.Close() })
			}
			began := time.Now()
			d, err := Create(path)
			took := time.Since(began)
			if !c.waits {
				if !errors.Is(err, ErrRecording) || took > keeperPatience/2 {
					t.Errorf("%v after %v", err, took)
				}
				return
			}
			if err != nil || took < long {
				t.Fatalf("%v after %v", err, took)
			}
			d.Rollback()
		})
	}
}
