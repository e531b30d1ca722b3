//go:build linux

package tracefs

import (
	"errors"

	"github.com/fentry-dev/fentry/trace"
)

// A Target is what is recorded: functions of processes that run, which can be switched, and a buffer with the newest of
// their events. Its methods are safe for concurrent use.
type Target interface {
	// Functions are all that can be switched, in the order in which they are listed. Those of images that come are listed
	// behind the others.
	Functions() []Function
	// Images are those that processes have now: functions of others were in libraries that have been unloaded.
	Images() ([]trace.ImageID, error)
	// Switch switches each function on or off.
	Switch(on func(image trace.ImageID, id uint32) bool) error
	// Open returns a copy of what is in the buffer that is newer than a counter, and some that is older, as a trace, which is
	// closed before the next is asked for. Times in all of them compare exactly. The error wraps ErrOver when the recording
	// has ended.
	Open(from uint64) (*trace.Trace, error)
	// Moved tells whether anything may have come to the buffer since it was asked before. It is asked by one at a time.
	Moved() bool
	// Size is how many bytes the buffer has.
	Size() int64
	// Now is the counter that events have.
	Now() uint64
}

// A Syscaller is a Target that can record system calls, too: then there are events of them.
type Syscaller interface {
	Target
	// Syscalls switches whether system calls are recorded.
	Syscalls(on bool) error
}

// ErrOver is a Target's error when the recording has ended: who reads trace_pipe gets the end of the file, and whoever uses
// other files ENODEV.
var ErrOver = errors.New("the recording has ended")

// A Function is one that can be traced.
type Function struct {
	Image  trace.ImageID
	ID     uint32 // in the image
	Name   string
	Module string // the library that it is in; "": the program
}

// functions are a target's.
type functions struct {
	all  []Function
	here map[trace.ImageID]bool // images that are loaded; nil: all
}

// listed tells whether a function is in an image that is loaded.
func (f *functions) listed(i int) bool { return f.here == nil || f.here[f.all[i].Image] }

// look takes note of which images are loaded.
func (f *functions) look(images []trace.ImageID) {
	f.here = make(map[trace.ImageID]bool)
	for _, id := range images {
		f.here[id] = true
	}
}

// add adds functions of images that were not there; false: there are none.
func (f *functions) add(now []Function) bool {
	known := make(map[trace.ImageID]bool)
	for i := range f.all {
		known[f.all[i].Image] = true
	}
	before := len(f.all)
	for i := range now {
		if !known[now[i].Image] {
			f.all = append(f.all, now[i])
		}
	}
	return len(f.all) > before
}

// lookup returns functions of a trace by their place in all; -1: it is none of these.
func (f *functions) lookup(t *trace.Trace) func(trace.FuncID) int {
	of := make(map[trace.ImageID][]int)
	for i := range f.all {
		places := of[f.all[i].Image]
		for len(places) <= int(f.all[i].ID) {
			places = append(places, -1)
		}
		places[f.all[i].ID] = i
		of[f.all[i].Image] = places
	}
	byImage := make([][]int, len(t.Images))
	for i := range t.Images {
		byImage[i] = of[t.Images[i].ID]
	}
	return func(id trace.FuncID) int {
		if int(id.Image) >= len(byImage) || int(id.ID) >= len(byImage[id.Image]) {
			return -1
		}
		return byImage[id.Image][id.ID]
	}
}
