//go:build linux

package drain

import (
	"os"
	"testing"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Ids say which process recorded something, until there is one that can only be of another PID namespace: from then on
// only those are believed whose process here is seen to map the pool.
func TestTrusted(t *testing.T) {
	l := NewLiveness(procfs.SharedFile{Inode: 1, Path: "/nothing"})
	l.Start(os.Getpid())
	if !l.trusted(os.Getpid()) || !l.trusted(os.Getpid()+1) {
		t.Error("ids are not believed")
	}
	l.saw(1)
	if l.trusted(os.Getpid()) || l.trusted(1) {
		t.Error("a process is believed to have recorded something that does not map the pool")
	}
}

// Of an id that processes of several PID namespaces have, nobody is believed.
func TestClaims(t *testing.T) {
	l := NewLiveness(procfs.SharedFile{})
	for _, tt := range []struct {
		pid, host int
		want      bool
	}{{7, 1007, true}, {8, 1008, true}, {7, 1007, true}, {7, 2007, false}, {7, 1007, false}, {8, 1008, true}, {9, 9, true}} {
		if got := l.is(tt.pid, tt.host); got != tt.want {
			t.Errorf("%d is %d: %v", tt.host, tt.pid, got)
		}
	}
}
