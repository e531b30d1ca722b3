//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
	"github.com/fentry-dev/fentry/trace"
)

// What processes were told is forgotten with them.
func TestSettingsForgotten(t *testing.T) {
	s := &session{shared: procfs.SharedFile{Inode: 1, Path: filepath.Join(t.TempDir(), "nobody maps this")}}
	ended := processID{1, 1}
	s.setting.limits = map[processID]limited{ended: {depth: 1}}
	s.setting.told = map[processID]told{ended: {1, 1}}
	if done, err := s.applyTo(&settings{}, false, false, false); len(done) > 0 || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if len(s.setting.limits) > 0 || len(s.setting.told) > 0 {
		t.Errorf("%v, %v", s.setting.limits, s.setting.told)
	}
}

// All processes are changed, those that were forked meanwhile, too; nobody waits for a program that forks all the time.
func TestSettingsForked(t *testing.T) {
	for forks, want := range map[int]bool{0: true, mostLooks - 2: true, 1000: false} {
		there := []procfs.Process{{Pid: 1}, {Pid: 2}}
		var done []int
		_, all := eachOf(func() []procfs.Process { return there }, func(p procfs.Process) bool {
			done = append(done, p.Pid)
			if len(there) < 2+forks {
				there = append(there[:len(there):len(there)], procfs.Process{Pid: len(there) + 1})
			}
			return true
		})
		if all != want || len(done) < 2 || all && len(done) != 2+forks || len(done) > 100 {
			t.Errorf("%d forked: all %v, done %v", forks, all, done)
		}
	}
}

// Without a process nothing can be said about functions.
func TestSettingsWithoutProcess(t *testing.T) {
	none := func(trace.ImageID) ([]uint32, error) { return nil, nil }
	s := &session{shared: procfs.SharedFile{Inode: 1, Path: filepath.Join(t.TempDir(), "nobody maps this")}}
	s.o.Match = func(string) (func(trace.ImageID) ([]uint32, error), error) { return none, nil }
	s.o.Doing = func(string, string) (*Doing, error) {
		return &Doing{Of: func(trace.ImageID) (map[uint32][]patch.Act, error) { return nil, nil }}, nil
	}
	for _, line := range []string{"set_graph_function = work", "set_ftrace_filter = work", "trigger = work@traceoff"} {
		if _, err := s.obey(line); err == nil || err.Why != errNothingToChange.Error() {
			t.Errorf("%s: %v", line, err)
		}
	}
	if why := unmatched(map[trace.ImageID]int{1: 1}); why != noFunction {
		t.Errorf("with an image: %s", why)
	}
}

// A process that cannot be changed because it ends, or executes another program, refuses nothing.
func TestSettingsOfEnding(t *testing.T) {
	own, err := procfs.ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	self := procfs.Process{Pid: os.Getpid(), Inner: os.Getpid(), Start: own.Start}
	file := filepath.Join(t.TempDir(), "shared")
	if err := os.WriteFile(file, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	s := &session{shared: procfs.SharedFile{Inode: st.Ino, Path: file}} // which this process maps
	ended := self
	ended.Start++
	refused := errors.New("it refuses")
	if s.gone(self, nil) || s.gone(self, refused) {
		t.Error("a process that refuses is gone")
	}
	if !s.gone(self, fmt.Errorf("read: %w", tracee.ErrEnded)) || !s.gone(ended, refused) {
		t.Error("a process that ends refuses")
	}
	if s.shared.Path += "-other"; !s.gone(self, refused) {
		t.Error("a process that executes another program refuses")
	}
}

// TestChoiceText: a choice reads as patterns that choose the same when they are set.
func TestChoiceText(t *testing.T) {
	adds, takes := []rule{{adds: true, pattern: "a"}}, []rule{{pattern: "b"}}
	for _, tt := range []struct {
		c    choice
		want string
	}{
		{choice{}, ""},
		{choice{}.with("=", adds), "a"},
		{choice{}.with("+=", adds), "* a"},
		{choice{}.with("-=", takes), "!b"},
		{choice{}.with("-=", takes).with("+=", adds), "!b a"},
		{choice{}.with("=", adds).with("-=", takes), "a !b"},
		{choice{}.with("+=", adds).with("=", nil), ""},
	} {
		if have := tt.c.String(); have != tt.want {
			t.Errorf("%q, want %q", have, tt.want)
		}
	}
}
