//go:build linux

package session

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/launch"
)

// A session waits for what it does not control: the program, an emulator, file systems that a program may serve and
// that need not answer, a terminal or pipe that nobody reads. SIGINT and SIGTERM end it whatever that is. Usually one
// or two do (interrupts): the program is asked to end, or the recording stops and what is left is written. That takes
// place in a goroutine of its own, and the goroutine of Run does nothing but count signals:
//
//   - the next one after the recording has stopped gives up what the trace can do without: symbols that are still being
//     read, the removal of an older trace;
//   - one more, or three while the program runs or is being started, and Run returns without waiting for anything.
//
// A limit of time instead would cut off traces that just take long to write.

// ErrInterrupted is the WriteError of a session, or the error of one that had not begun, that signals ended before it
// had done its work.
var ErrInterrupted = errors.New("interrupted")

// enough is how many signals end a session that does not react to them.
const enough = 3

// ending is what is known of the end of a session.
type ending struct {
	winding atomic.Bool    // the recording has stopped
	giveUp  chan struct{}  // closed: what the trace can do without is left out
	relay   chan os.Signal // signals, for who waits for the program
}

// counter counts signals that ask a session to end.
type counter struct {
	before, after int // the recording stopped
}

// got tells what a signal is to do, besides what interrupts say.
func (c *counter) got(winding bool) (giveUp, leave bool) {
	if winding {
		c.after++
		return c.after == 1, c.after > 1
	}
	c.before++
	return false, c.before >= enough
}

// forced runs body and returns when that has, or nil when signals say not to wait for it any longer: their number is
// returned then.
func (s *session) forced(signals <-chan os.Signal, body func()) (left syscall.Signal) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		body()
	}()
	var c counter
	for {
		select {
		case <-done:
			return 0
		case sig := <-signals:
			num := sig.(syscall.Signal)
			if num == unix.SIGXFSZ {
				continue
			}
			// In this order: what this signal makes the session do does not count for it.
			giveUp, leave := c.got(s.end.winding.Load())
			select {
			case s.end.relay <- sig:
			default:
			}
			if giveUp {
				close(s.end.giveUp)
			}
			if leave {
				return num
			}
		}
	}
}

// launch starts the program; if signals say not to wait for that any longer, it returns ErrInterrupted.
func (s *session) launch(l *launch.Launcher, signals <-chan os.Signal) (st launch.Started, err error) {
	type result struct {
		st  launch.Started
		err error
	}
	started := make(chan result, 1)
	sig := s.forced(signals, func() {
		st, err := l.Launch()
		started <- result{st, err}
	})
	if sig != 0 {
		return st, fmt.Errorf("%s: %w while it was being started", l.Path, ErrInterrupted)
	}
	r := <-started
	return r.st, r.err
}

// interruptible waits for f, but not after it has been given up.
func (s *session) interruptible(f func()) (done bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	select {
	case <-ended:
		return true
	case <-s.end.giveUp:
		return false
	}
}
