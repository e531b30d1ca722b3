package trace

// Parks.
//
// A goroutine that waits, for a channel, a lock, the network or a time, calls runtime.gopark, whichever of them it is, and
// that returns when the goroutine runs again, on whichever thread. So the time that a call of a Go program has waited is
// that of the calls of this one function inside it, exactly: from parking to running, and not only to being ready. What it
// waits for is the caller's business, and its name says it. A goroutine that has been stopped to let others run has not
// parked, nor has one in a system call: both count as running.
//
// What a goroutine waited for last, and never got, has no end and no time, as for all calls that the trace leaves open.
//
// The recorder traces that function with all others; an image says which id it has. The runtime's own goroutines, those of
// the collector for instance, park as well, and do nothing else that is traced: they are no tasks (goroutines.go).

// hasParks reports whether the trace tells how long goroutines waited.
func (t *Trace) hasParks() bool {
	for i := range t.Images {
		if t.Images[i].Park != 0 {
			return true
		}
	}
	return false
}

// Parks reports whether a function is the one that goroutines of a Go program wait in.
func (t *Trace) Parks(f FuncID) bool { return f.ID != 0 && t.parkID(f.Image) == f.ID }

// readyID is the id of the function that makes goroutines of an image ready to run, 0: there is none.
func (t *Trace) readyID(image uint32) uint32 {
	if int64(image) >= int64(len(t.Images)) {
		return 0
	}
	return t.Images[image].Ready
}

// parks is how long a goroutine has been parked.
type parks struct {
	sink
	park  func(FuncID) bool
	sum   uint64
	since uint64 // when it has parked
	now   bool   // it is parked
}

// followParks has a follower that asks for times of a goroutine notice when it parks.
func (fl *follower) followParks(t *Trace, k *Task) {
	if k.Goroutine == 0 || !t.hasParks() {
		return
	}
	p := &parks{sink: fl.sink, park: t.Parks}
	fl.waits.parks, fl.sink = p, p
}

// parkID is the id of the function that goroutines of an image wait in, 0: there is none.
func (t *Trace) parkID(image uint32) uint32 {
	if int64(image) >= int64(len(t.Images)) {
		return 0
	}
	return t.Images[image].Park
}

func (p *parks) enter(f *frame) {
	if p.park(f.fn) {
		p.now, p.since = true, f.start
	}
	p.sink.enter(f)
}

func (p *parks) leave(f *frame, end uint64, how ending) {
	if p.now && p.park(f.fn) {
		p.now = false
		p.sum = addTicks(p.sum, end-min(end, p.since))
	}
	p.sink.leave(f, end, how)
}

// at returns how long it has been parked at a time.
func (p *parks) at(t uint64) uint64 {
	if p.now {
		return addTicks(p.sum, t-min(t, p.since))
	}
	return p.sum
}

// parked divides a total, in ns.
func (t *Trace) parked(s *offTime, total int64, w wants) (running, waiting int64) {
	switch {
	case w == noWaits:
		return 0, 0
	case !w.marked() || !t.hasParks():
		return -1, -1
	}
	waiting = min(t.Clock.Span(s.parked), total)
	return total - waiting, waiting
}
