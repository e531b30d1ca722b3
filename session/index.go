//go:build linux

package session

import (
	"runtime"
	"time"

	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

// While a program runs, what has been written of its trace is indexed (trace.IndexMaker), on
// processors that have nothing else to do. The maker reads the files as any reader does, so
// the drainer does not know of it, and no program ever waits for it.
//
// Whether others want the processor is seen by how long the thread waits for it (clock.Stretch).
// Then the thread rests a hundred times as long as it works, which costs a hundredth of a processor,
// and the index stays behind: the first reader makes the rest. A thread of the lowest
// priority (SCHED_IDLE) was considered. It would hold up the whole process, the drainer
// included, whenever Go's garbage collector waits for a thread that is never run; and a
// process of its own would be one more that lives on when the recorder is killed.

const (
	indexLook  = 100 * time.Millisecond // how often it is seen whether there is enough to index
	indexSlice = 4 * time.Millisecond   // is worked at a time
	indexRest  = 100 * time.Millisecond // when others want the processor, after a quarter of that
	indexIdle  = 20 * time.Millisecond  // when there is nothing to do
	indexGrace = 250 * time.Millisecond // for what is left at the end
)

// An indexing is the making of an index.
type indexing struct {
	dir   *tracedir.Dir
	from  int64         // bytes of events that are worth it
	ended chan struct{} // closed when there are no more events
	done  chan struct{} // closed when the index is as it will be
}

// index begins to make the index, if this is a recording that it can be made of. A trace of the newest events is short,
// and not written before the end.
func (s *session) index() *indexing {
	if s.pool == nil || s.o.Policy == trace.PolicyOverwrite || parallel.Processors() < 2 {
		return nil
	}
	worth := int64(trace.WorthIndex)
	if s.o.Compress != CompressNone {
		worth /= 16 // it is of more than the file's size
	}
	x := newIndexing(s.dir, worth)
	go x.run()
	return x
}

func newIndexing(dir *tracedir.Dir, from int64) *indexing {
	return &indexing{dir: dir, from: from, ended: make(chan struct{}), done: make(chan struct{})}
}

// end tells that there are no more events.
func (x *indexing) end() {
	if x != nil {
		close(x.ended)
	}
}

// wait returns when nothing is written any more.
func (x *indexing) wait() {
	if x != nil {
		<-x.done
	}
}

func (x *indexing) run() {
	defer close(x.done)
	if !x.enough() {
		return
	}
	events, chunks, index, err := x.dir.CreateIndex()
	if err != nil {
		return // nobody misses it
	}
	defer events.Close()
	defer chunks.Close()
	defer index.Close()
	m, err := trace.NewIndexMaker(events, chunks, index)
	if err != nil {
		return
	}
	_ = m.Close(x.follow(m))
}

// enough waits until there is enough to index. It returns false if there never is.
func (x *indexing) enough() bool {
	for over := false; ; {
		if fi, err := x.dir.Events.Stat(); err != nil || fi.Size() >= x.from || over {
			return err == nil && fi.Size() >= x.from
		}
		over = x.rest(indexLook)
	}
}

// rest sleeps, but not after the end. It returns true if that has come.
func (x *indexing) rest(d time.Duration) (over bool) {
	select {
	case <-x.ended:
		return true
	case <-time.After(d):
		return false
	}
}

// follow follows the trace. It returns whether it has come to the end.
func (x *indexing) follow(m *trace.IndexMaker) (end bool) {
	runtime.LockOSThread() // whose time is measured
	defer runtime.UnlockOSThread()
	var deadline time.Time
	slice, pause := indexSlice, indexRest
	for {
		work := clock.Begin()
		more := true
		var err error
		for more && err == nil && work.Took() < slice {
			more, err = m.Step()
		}
		shared := work.Shared()
		over := x.rest(0)
		switch {
		case err != nil:
			return false
		case over && deadline.IsZero():
			deadline = time.Now().Add(indexGrace)
		case over && !more:
			return true
		case over && time.Now().After(deadline):
			return false
		case over:
		case !more:
			x.rest(indexIdle)
		case shared:
			slice = indexSlice / 4
			x.rest(pause)
			pause = min(2*pause, 4*indexRest)
		default:
			slice, pause = indexSlice, indexRest
		}
	}
}
