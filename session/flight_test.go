//go:build linux

package session

import (
	"testing"
	"time"

	"github.com/fentry-dev/fentry/session/internal/drain"
)

// A dump that a call asks for while another is made waits until that is done, and its thread does not wait for it so long;
// of calls that ask soon afterwards, and of those that find one waiting, there is only a number.
func TestFlightCallsWait(t *testing.T) {
	f := newFlight(&Flight{})
	ask := func(id uint64, want uint32) {
		t.Helper()
		if answer := f.atCall(&drain.Request{Argument: id}); answer != want {
			t.Errorf("call of function %d: answer %v, want %v", id, answer, want)
		}
	}
	ask(1, drain.Done)  // nobody takes it yet
	ask(2, drain.Later) // soon afterwards
	f.last = time.Now().Add(-2 * dumpInterval)
	ask(3, drain.Later) // one is waiting
	if f.more != 2 {
		t.Errorf("%d calls have asked that were not heard, want 2", f.more)
	}
	select {
	case r := <-f.calls:
		if r.call != 1 {
			t.Errorf("function %d is waiting, want 1", r.call)
		}
	default:
		t.Error("what a call asked for is forgotten")
	}
	f.last = time.Now().Add(-2 * dumpInterval)
	close(f.stop)
	ask(4, drain.Done)
	if r := <-f.calls; r.call != 4 {
		t.Errorf("function %d is waiting, want 4", r.call)
	}
}
