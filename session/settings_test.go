//go:build linux

package session

import (
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/session/internal/procfs"
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
