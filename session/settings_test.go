//go:build linux

package session

import (
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// What processes were told is forgotten with them.
func TestSettingsForgotten(t *testing.T) {
	s := &session{shared: procfs.SharedFile{Inode: 1, Path: filepath.Join(t.TempDir(), "nobody maps this")}}
	ended := processID{1, 1}
	s.setting.limits = map[processID]limited{ended: {depth: 1}}
	s.setting.told = map[processID]told{ended: {1, 1}}
	if done, err := s.applyTo(&settings{}, false, false); len(done) > 0 || err != nil {
		t.Fatalf("%v, %v", done, err)
	}
	if len(s.setting.limits) > 0 || len(s.setting.told) > 0 {
		t.Errorf("%v, %v", s.setting.limits, s.setting.told)
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
