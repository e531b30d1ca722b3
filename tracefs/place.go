//go:build linux

package tracefs

import "github.com/fentry-dev/fentry/trace"

// How far a reader has come in a task's events, which is kept from one copy of the buffer to the next. The clock is coarser
// than calls are short, so several events can have one time: a place is a time, and how many events of that time were read.
// What a walk reads counts from its end on.

// place is behind an event of a task.
type place struct {
	time int64
	n    int  // events at that time, up to there
	leaf bool // the last one is the entry of a leaf call
}

// next is the place behind the task's next event.
func (p place) next(ev *trace.Event) place {
	n := 1
	if ev.Time == p.time {
		n += p.n
	}
	return place{ev.Time, n, ev.Kind == trace.Entry && ev.Flags&trace.FlagLeaf != 0}
}

// covers tells whether another place is not behind this one.
func (p place) covers(q place) bool { return q.time < p.time || q.time == p.time && q.n <= p.n }

// reader is a walk's place in a task's events.
type reader struct {
	id    taskID
	begin place // where the last walk has ended
	any   bool  // there is one
	at    place // behind the last event
	taken place // behind the last event that is not to be read again
	takes bool  // there is one
}

// next goes behind an event, and tells whether it is new.
func (r *reader) next(ev *trace.Event) bool {
	r.at = r.at.next(ev)
	return !r.read(r.at)
}

// read tells whether an earlier walk has read what is before a place.
func (r *reader) read(p place) bool { return r.any && r.begin.covers(p) }

// take has the event not be read again.
func (r *reader) take() { r.taken, r.takes = r.at, true }

// readers are those of a walk.
type readers struct {
	places map[taskID]place // by task, where it goes on
	of     map[*trace.Task]*reader
}

func newReaders(places map[taskID]place) readers {
	return readers{places, make(map[*trace.Task]*reader)}
}

func (r *readers) task(k *trace.Task) *reader {
	if of := r.of[k]; of != nil {
		return of
	}
	of := &reader{id: idOf(k)}
	of.begin, of.any = r.places[of.id]
	r.of[k] = of
	return of
}

// end keeps what was taken.
func (r *readers) end() {
	for _, of := range r.of {
		if of.takes {
			r.places[of.id] = of.taken
		}
	}
}
