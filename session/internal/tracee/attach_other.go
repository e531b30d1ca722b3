//go:build linux && !amd64

package tracee

import (
	"errors"
	"runtime"
	"time"

	"github.com/fentry-dev/fentry/patch"
)

// Attachment is a plan in a process that runs.
type Attachment struct {
	Stopped time.Duration // the longest time for which its threads were stopped
	Busy    int           // functions left alone because a thread was at their beginning
}

// ErrStays: what was added to a process is still there.
var ErrStays = errors.New("its code stays in the process")

// ErrEnded: the process is gone.
var ErrEnded = errors.New("it has ended")

var errNoAttach = errors.New("not on " + runtime.GOARCH + " yet")

// CheckAttach returns an error for a process that cannot be attached to.
func CheckAttach(int) error { return errNoAttach }

// Attach puts a plan into a process that runs.
func Attach(int, *patch.Memory, []*Library, int) (*Attachment, error) { return nil, errNoAttach }

// Detach takes it out again.
func (a *Attachment) Detach(int) (time.Duration, error) { return 0, errNoAttach }

// Images are the image ids of the plans.
func (a *Attachment) Images() map[uint64]int { return nil }

// Switch switches functions of the process.
func (a *Attachment) Switch(int, func(image uint64, id uint32) bool) error { return errNoAttach }
