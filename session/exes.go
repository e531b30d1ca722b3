//go:build linux

package session

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// exes holds files of images open for who writes their symbols: a program that
// executes another one, or ends at once, is gone by then, and its path can be another
// file's. So a program that has announced an image waits until its file is open.
//
// What a program says is an image and a process. The process is only believed if it
// maps the pool; that the file is the image's is for the reader of the symbols to find
// out, by its build-id.
type exes struct {
	shared procfs.SharedFile
	host   func(pid int, namespace uint64) (host int, ok bool) // the id here of a process that asks
	saw    func(pid, host int)                                 // gets the process of each request

	mu    sync.Mutex
	files map[trace.ImageID]*os.File // nil: it has been used
	open  int                        // those that are not nil, and those that open has not returned from
}

const (
	mostExes   = 256                   // open at the same time
	mostImages = 4096                  // that are remembered, more than have ids
	openLimit  = 80 * time.Millisecond // the program waits for a little longer
)

func newExes(shared procfs.SharedFile, host func(int, uint64) (int, bool), saw func(pid, host int)) *exes {
	return &exes{shared: shared, host: host, saw: saw, files: make(map[trace.ImageID]*os.File)}
}

// handle answers a program's request.
func (e *exes) handle(r *drain.Request) uint32 {
	if r.Kind != format.AskNewImage {
		return drain.Unsupported
	}
	pid, ok := e.host(r.PID, r.NS)
	if !ok {
		return drain.Failed
	}
	e.saw(r.PID, pid)
	id := trace.ImageID(r.Argument)
	e.mu.Lock()
	_, known := e.files[id]
	full := e.full()
	if !known && !full {
		e.open++
	}
	e.mu.Unlock()
	switch {
	case known:
		return drain.Done
	case full:
		return drain.Failed
	}
	// The file system can be one that never answers: what waits for it counts as open, so that a program cannot make
	// any number of threads wait.
	opened := make(chan *os.File, 1)
	go func() {
		f, err := e.openExe(pid)
		if err != nil {
			f = nil
		}
		opened <- f
	}()
	// In parts, as only time counts that was asked for, and not what this process was late to go on: whoever opens the
	// file is late as well then.
	const parts = 8
	for range parts {
		select {
		case f := <-opened:
			return e.keep(id, f)
		case <-time.After(openLimit / parts):
		}
	}
	go func() { e.keep(id, <-opened) }()
	return drain.Failed
}

// full tells whether no more files can be held open. The caller has the lock.
func (e *exes) full() bool { return e.open >= mostExes || len(e.files) >= mostImages }

// keep keeps a file for an image; nil: it could not be opened. It is counted as open already.
func (e *exes) keep(id trace.ImageID, f *os.File) uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.files[id]
	if f == nil || known || e.files == nil {
		e.open--
		f.Close()
		return drain.Failed
	}
	e.files[id] = f
	return drain.Done
}

// openExe opens the file that a traced process runs.
func (e *exes) openExe(pid int) (*os.File, error) {
	if mapped, _ := e.shared.MappedBy(pid); !mapped {
		return nil, fmt.Errorf("process %d is not traced", pid)
	}
	path := fmt.Sprintf("/proc/%d/exe", pid)
	return safefile.Open(path)
}

// take hands an image's file over to who closes it; nil: there is none.
func (e *exes) take(id trace.ImageID) *os.File {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.files[id]
	if e.files != nil {
		e.files[id] = nil
	}
	if f != nil {
		e.open--
	}
	return f
}

// close closes what nobody has asked for.
func (e *exes) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.files {
		if f != nil {
			f.Close()
		}
	}
	e.files = nil
}
