//go:build linux

package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
	"github.com/fentry-dev/fentry/trace"
)

// What is recorded of processes while they run.
//
// The settings of a session are what whoever controls it has asked for, and are put into each process that maps the pool,
// whether it was started, attached to, or forked or executed by one of these, and into those that come later when they say
// that they are there. All of them are tried; where one refuses, the others get back what they had.
//
// A function's switch is a byte in the program that its thunk tests, so nobody is stopped for a change of filters. Limits
// of depth and time and graph roots are the runtime's to know, in all threads at once, so for these a process is stopped
// for a moment (tracee.Runtime).

// settings are what is recorded. The zero value is all that was planned.
type settings struct {
	paused  bool // tracing_on is 0
	silent  bool // syscalls is 0
	nop     bool // current_tracer is nop
	flat    bool // current_tracer is function, in a recording of function_graph
	filter  choice
	notrace choice
	roots   choice
	depth   uint32
	thresh  time.Duration
	doing   []doing    // in their order
	added   *additions // functions that were not planned in the beginning
	edition uint64     // another one each time that what is done at calls can be another
	filters uint64     // another one each time that other functions can be on
}

// A choice is a set of functions, as patterns have made it. The zero value chooses nothing, or everything, as its user
// has it.
type choice struct {
	rules []rule
	only  bool // it begins with no function; else rules take some away from all, or nobody has chosen
	// of is a set that is no patterns' (Live.Switch); nil: rules say it.
	of func(image trace.ImageID, id uint32) bool
}

// A rule adds functions, or takes them away.
type rule struct {
	adds    bool
	pattern string
	ids     func(trace.ImageID) ([]uint32, error)
}

// chooses tells whether anybody has chosen.
func (c *choice) chooses() bool { return c.of != nil || c.only || len(c.rules) > 0 }

// with is the choice once a command has changed it.
func (c choice) with(op string, rules []rule) choice {
	switch {
	case op == "=":
		return choice{rules: rules, only: len(rules) > 0}
	}
	// Of two rules with a pattern the later one says all.
	c.rules = slices.DeleteFunc(slices.Clone(c.rules), func(was rule) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return r.pattern == was.pattern })
	})
	switch {
	case c.of != nil:
		// What patterns add to, or take away from, a set of somebody else's.
		return choice{rules: slices.Concat(c.rules, rules), only: c.only, of: c.of}
	}
	return choice{rules: slices.Concat(c.rules, rules), only: c.only}
}

// in is the choice in an image. In one of which only is said, nothing is chosen but by rules.
func (c *choice) in(image trace.ImageID, only bool) (func(id uint32) bool, error) {
	of, only := c.of, c.only || only
	base := func(id uint32) bool { return of != nil && of(image, id) || of == nil && !only }
	if len(c.rules) == 0 {
		return base, nil
	}
	chosen := make(map[uint32]bool)
	for _, r := range c.rules {
		ids, err := r.ids(image)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			chosen[id] = r.adds
		}
	}
	return func(id uint32) bool {
		if on, ok := chosen[id]; ok {
			return on
		}
		return base(id)
	}, nil
}

// String is the choice as patterns.
func (c *choice) String() string {
	var b strings.Builder
	switch {
	case c.of != nil:
		b.WriteString("(others) ")
	case !c.only && len(c.rules) > 0 && c.rules[0].adds: // to all that are there
		b.WriteString("* ")
	}
	for _, r := range c.rules {
		if !r.adds {
			b.WriteByte('!')
		}
		b.WriteString(r.pattern)
		b.WriteByte(' ')
	}
	return strings.TrimSuffix(b.String(), " ")
}

// on are the functions whose switches are on, in an image; nil: all.
func (s *settings) on(image trace.ImageID) (func(id uint32) bool, error) {
	recorded, err := s.recorded(image)
	if err != nil || recorded == nil || len(s.doing) == 0 {
		return recorded, err
	}
	acts, err := s.acts(image)
	return func(id uint32) bool { return len(acts[id]) > 0 || recorded(id) }, err
}

// recorded are the functions that a filter and what takes away from it leave, in an image; nil: all.
func (s *settings) recorded(image trace.ImageID) (func(id uint32) bool, error) {
	added := s.added.find(image) != nil
	switch {
	case s.nop:
		return func(uint32) bool { return false }, nil
	case !s.filter.chooses() && !s.notrace.chooses() && !added:
		return nil, nil
	}
	in, err := s.filter.in(image, added)
	if err == nil && added && s.roots.chooses() && s.filter.of == nil && !s.filter.only {
		in, err = s.withRoots(image, in)
	}
	if err != nil || !s.notrace.chooses() {
		return in, err
	}
	out, err := s.notrace.in(image, false)
	return func(id uint32) bool { return in(id) && !out(id) }, err
}

// setting is what a session's processes are set to.
type setting struct {
	mu     sync.Mutex
	now    settings
	again  chan struct{}         // an image has come
	limits map[processID]limited // what processes were given; none: nothing

	ever    bool // somebody has set something
	failing bool // what has come could not be set, and is tried again

	told    map[processID]told // processes that were told what to record
	settled bool               // sites can be nops
	quiet   time.Time          // when something was set last; zero: nobody has, or all is settled
	costly  atomic.Bool        // functions have been switched off since that cost too much
	next    time.Time          // when those may lose their sites

	without map[processID]string // functions that are on and not recorded yet, of processes that have some
	left    []string             // what is said of functions that were to be added, and cannot be, since a command began
}

// quietTime is for how long nothing is set before functions that are off lose their sites. Whoever switches to and fro
// switches bytes alone. Functions that cost too much lose theirs when the program has run for costlyTime, and from then on as often
// as that takes the recorder no more than a part of the time (settleShare).
const (
	quietTime   = time.Second
	costlyTime  = 2 * time.Second
	settleShare = 20
)

// due tells whether functions that are off are to lose their sites. The caller has the lock.
func (t *setting) due() bool {
	return !t.quiet.IsZero() && time.Since(t.quiet) > quietTime || t.costly.Load() && time.Now().After(t.next)
}

// processID is one that cannot be mistaken for a later one.
type processID struct {
	pid   int
	start uint64
}

// told is what a process was told of filters, and how many images it had then.
type told struct{ filters, images uint64 }

// limited is what a process's runtime has been told of limits, and how many images it had then.
type limited struct {
	depth  uint32
	thresh time.Duration
	roots  string
	images uint64 // differs when one comes, or comes again

	edition uint64 // of what is done at calls
	flat    bool
}

// errNothingToChange is for sessions none of whose processes can be changed.
var errNothingToChange = errors.New("no process of it can be changed: it has ended, or is about to start, or was linked with the tracer")

// apply puts settings into all processes, or into none; clear also switches functions on that cost too much, and paused has
// recording pause or go on as they say, whatever triggers have made of it. With same, the same functions are on. The caller has
// the lock.
func (s *session) apply(to settings, clear, paused, same bool) error {
	was := s.setting.now
	if !same {
		to.changed(&was)
		to.filters = was.filters + 1
	}
	s.setting.ever = true
	done, err := s.applyTo(&to, clear, paused, false)
	if err != nil {
		s.did(s.anyTold(to.edition)) // readers see what it did meanwhile
		was.filters = to.filters + 1
		if to.edition != was.edition {
			was.edition = to.edition + 1
		}
		for i, p := range done {
			if id := (processID{p.Pid, p.Start}); i == len(done)-1 && tracee.Unchanged(err) {
				l := s.setting.limits[id] // nothing was changed in it
				l.edition = was.edition
				s.setting.limits[id] = l
			}
			if uerr := s.undoIn(p, &was, paused); uerr != nil && !errors.Is(uerr, tracee.ErrNoRuntime) && !s.gone(p, uerr) {
				err = fmt.Errorf("%w; process %d does not record yet as before, which is tried again: %w", err, p.Pid, uerr)
				s.behind(uerr)
			}
		}
		s.setting.now.edition, s.setting.now.filters = was.edition, was.filters
		s.come() // a child forked meanwhile can have got what its parent had for a moment
		return err
	}
	if done == nil {
		return errNothingToChange
	}
	s.setting.now, s.setting.quiet = to, time.Now()
	s.did(true)
	return nil
}

// anyTold tells whether a process was told what is done at calls, by the number that this has.
func (s *session) anyTold(edition uint64) bool {
	for _, l := range s.setting.limits {
		if l.edition == edition {
			return true
		}
	}
	return false
}

// settles tells which plan's sites a process has; nil: those that cannot be changed, or not any more. The caller has the lock.
func (s *session) settles(p procfs.Process) *tracee.Attachment {
	if s.attached != nil {
		if of := s.attached.of(p.Pid); of != nil {
			return of.at
		}
		return nil
	}
	st := s.started.Load()
	if s.injected == nil || st == nil {
		return nil
	}
	if !s.injected.HasPlaces() && s.o.Whole != nil {
		if whole := s.o.Whole(); whole != nil {
			s.injected = whole
		}
		s.o.Whole = nil
	}
	a, err := tracee.Injected(p.Pid, append([]tracee.Plan{{Memory: s.injected}}, s.setting.now.added.plans()...)...)
	if err != nil {
		return nil
	}
	return a
}

// settle has functions that are off in all processes run without their sites, and those that are on with them. It returns
// how many are off, of how many that can be. The caller has the lock.
func (s *session) settle(tries int) (off, all int, err error) {
	s.setting.quiet = time.Time{}
	s.setting.costly.Store(false)
	began, whole := time.Now(), s.o.Whole != nil
	defer func() {
		pause := costlyTime
		if !whole { // else it is the one time that the program is planned as a whole
			pause = max(pause, settleShare*time.Since(began))
		}
		s.setting.next = time.Now().Add(pause)
	}()
	for _, p := range s.changeable() {
		a := s.settles(p)
		if a == nil {
			continue
		}
		got, serr := s.settleIn(p, a, tries)
		if errors.Is(serr, tracee.ErrOther) || s.gone(p, serr) {
			continue
		}
		if serr != nil {
			err = errors.Join(err, fmt.Errorf("process %d: %w", p.Pid, serr))
			continue
		}
		s.setting.settled = true
		off, all = off+got.Off, all+got.All
	}
	return off, all, err
}

// settleIn does so in a process. Where threads are in the middle of functions that are on, it is said, and tried again later.
func (s *session) settleIn(p procfs.Process, a *tracee.Attachment, tries int) (tracee.Settled, error) {
	got, err := a.Settle(p.Pid, tries)
	id, now := processID{p.Pid, p.Start}, places(got.Without)
	was := s.setting.without[id]
	switch {
	case len(got.Without) > 0:
		s.setting.quiet, s.setting.without[id] = time.Now(), now
		if was != now {
			s.logf("process %d: not recorded yet, as a thread is in the middle of where their calls are caught: %s", p.Pid, now)
		}
	case was != "" && err == nil:
		delete(s.setting.without, id)
		s.logf("process %d: recorded from now on: %s", p.Pid, was)
	}
	return got, err
}

// waiting says which functions are on and not recorded yet; "": all are. The caller has the lock.
func (s *session) waiting() string {
	var all []string
	for id, names := range s.setting.without {
		all = append(all, fmt.Sprintf("process %d: not recorded yet: %s", id.pid, names))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// settleNow is settle for who asks.
func (s *session) settleNow(c *command) (string, *ControlError) {
	s.setting.mu.Lock()
	defer s.setting.mu.Unlock()
	if s.end.winding.Load() {
		return "", &ControlError{c.name.at, ErrOver.Error()}
	}
	off, all, err := s.settle(tracee.SettleTries)
	switch {
	case err != nil:
		return "", &ControlError{c.name.at, err.Error()}
	case all == 0:
		return "", &ControlError{c.name.at, "the sites of this recording stay: it has no program that was traced in memory"}
	}
	answer := fmt.Sprintf("%d of %d", off, all)
	if waiting := s.waiting(); waiting != "" {
		answer += "; " + waiting
	}
	return answer, nil
}

// forget drops what is known of processes that are not among those that there are.
func (t *setting) forget(there map[processID]bool) {
	ended := func(id processID) bool { return !there[id] }
	maps.DeleteFunc(t.limits, func(id processID, _ limited) bool { return ended(id) })
	maps.DeleteFunc(t.told, func(id processID, _ told) bool { return ended(id) })
	maps.DeleteFunc(t.without, func(id processID, _ string) bool { return ended(id) })
}

// applyTo puts settings into all processes that there are, and those that these fork meanwhile, until one refuses, or with on
// also into the others.
func (s *session) applyTo(to *settings, clear, paused, on bool) (done []procfs.Process, err error) {
	seen, all := eachOf(s.changeable, func(p procfs.Process) bool {
		perr := s.applyIn(p, to, clear, paused)
		if errors.Is(perr, tracee.ErrNoRuntime) || s.gone(p, perr) {
			return true
		}
		done = append(done, p)
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("process %d: %w", p.Pid, perr))
		}
		return perr == nil || on
	})
	if err != nil && !on {
		return done, err
	}
	if s.setting.forget(seen); !all {
		s.come()
	}
	return done, err
}

// mostLooks is how often processes are looked for that were forked meanwhile. Those that a program which always forks makes
// still later have settings from their parents, and are looked at when nobody waits (reapply).
const mostLooks = 4

// eachOf does something with each process of a list, and with those that come meanwhile, until it returns false. all is false
// if there may be more of them.
func eachOf(list func() []procfs.Process, do func(procfs.Process) bool) (seen map[processID]bool, all bool) {
	seen = make(map[processID]bool)
	for range mostLooks {
		more := false
		for _, p := range list() {
			id := processID{p.Pid, p.Start}
			if seen[id] {
				continue
			}
			if seen[id], more = true, true; !do(p) {
				return seen, false
			}
		}
		if !more {
			return seen, true
		}
	}
	return seen, false
}

// gone tells whether a process could not be changed because it ends, or executes another program: its memory goes before
// anybody sees that it has ended.
func (s *session) gone(p procfs.Process, err error) bool {
	if err == nil || errors.Is(err, tracee.ErrEnded) || !procfs.ProcessAlive(p.Pid, p.Start) {
		return err != nil
	}
	mapped, known := s.shared.MappedBy(p.Pid)
	return known && !mapped
}

// applyIn puts settings into a process.
func (s *session) applyIn(p procfs.Process, to *settings, clear, paused bool) error {
	r, err := tracee.OpenRuntime(p.Pid)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := s.addIn(r, p, to); err != nil {
		return err
	}
	if err := s.limit(r, p, to); err != nil {
		return err
	}
	return s.switchIn(r, p, to, clear, paused)
}

// undoIn gives a process settings back that it had, as far as that is possible.
func (s *session) undoIn(p procfs.Process, was *settings, paused bool) error {
	r, err := tracee.OpenRuntime(p.Pid)
	if err != nil {
		return err
	}
	defer r.Close()
	return errors.Join(s.limit(r, p, was), s.switchIn(r, p, was, false, paused))
}

// switchIn switches a process's functions as settings say.
func (s *session) switchIn(r *tracee.Runtime, p procfs.Process, to *settings, clear, paused bool) error {
	id := processID{p.Pid, p.Start}
	was, ever := s.setting.told[id]
	sw := tracee.Switching{Pause: to.paused, Leave: !paused && (ever || !to.paused), Silent: to.silent, Costly: clear}
	now := told{to.filters, generation(r)}
	sw.Same = ever && was == now && !clear
	delete(s.setting.told, id) // until it is done
	sw.On = func(image uint64) (func(id uint32) bool, error) { return to.on(trace.ImageID(image)) }
	err := r.Switch(sw)
	if err != nil {
		return err
	}
	s.setting.told[id] = now
	if !s.setting.settled {
		return nil
	}
	// A child has the sites of its parent.
	if a := s.settles(p); a != nil {
		_, err = s.settleIn(p, a, tracee.SettleTries)
	}
	if errors.Is(err, tracee.ErrOther) {
		return nil // it has executed another program, whose sites stay
	}
	return err
}

// generation is a number for the images of a process, as they have been loaded.
func generation(r *tracee.Runtime) (n uint64) {
	for i := range r.Images {
		n = n*31 + r.Images[i].Loaded
	}
	return n
}

// limit has a process's runtime leave out calls by where they are and how long they take.
func (s *session) limit(r *tracee.Runtime, p procfs.Process, to *settings) error {
	id := processID{p.Pid, p.Start}
	was, ever := s.setting.limits[id]
	if !ever {
		was = limited{s.o.Depth, s.o.Threshold, "", generation(r), 0, r.Flat()}
		if r.Limited() { // it is a child of one that was told
			now := &s.setting.now
			was.depth, was.thresh, was.roots = now.depth, now.thresh, now.roots.String()
		}
	}
	want := limited{to.depth, to.thresh, to.roots.String(), generation(r), to.edition, to.flat}
	if was == want {
		return nil
	}
	was.flat = was.flat || was.images != want.images && r.Flat() // an image that has come can begin so
	l := tracee.Limits{Depth: to.depth, Threshold: to.thresh, Forget: want.roots != was.roots, Flat: to.flat}
	l.SetRoots = l.Forget || to.roots.chooses()
	l.SetActs = want.edition != was.edition || len(to.doing) > 0
	selective := false
	if l.SetActs { // before anybody is stopped
		all, errno := make(map[uint64]map[uint32][]patch.Act), make(map[uint64]int64)
		for i := range r.Images {
			acts, err := to.acts(trace.ImageID(r.Images[i].ID))
			if err != nil {
				return err
			}
			all[r.Images[i].ID] = acts
			if errno[r.Images[i].ID], err = to.errno(trace.ImageID(r.Images[i].ID)); err != nil {
				return err
			}
			for _, a := range acts {
				selective = selective || patch.Selective(a)
			}
		}
		l.Errno = func(image uint64) int64 { return errno[image] }
		l.Acts = func(image uint64) map[uint32][]patch.Act { return all[image] }
	}
	planned := limited{depth: s.o.Depth, thresh: s.o.Threshold}
	l.Frames = selective || want.depth != planned.depth || want.thresh != planned.thresh || want.roots != "" ||
		was.depth != want.depth || was.thresh != want.thresh || l.Forget || r.Limited()
	if !l.Frames && !l.SetActs && !to.flat && !was.flat {
		s.setting.limits[id] = want
		return nil
	}
	if to.roots.chooses() {
		l.Roots = func(image uint64) (func(id uint32) bool, error) { return to.roots.in(trace.ImageID(image), false) }
	}
	s.setting.limits[id] = was
	if err := r.Limit(l); err != nil {
		return err
	}
	s.setting.limits[id] = want
	return nil
}

// changeable are the processes of the session that can be changed.
func (s *session) changeable() []procfs.Process { return s.shared.MappersBut(tracee.Untraced) }

// images are those that processes of the session have, and how many functions of each can be switched.
func (s *session) switchable() map[trace.ImageID]int {
	out := make(map[trace.ImageID]int)
	for _, p := range s.changeable() {
		r, err := tracee.OpenRuntime(p.Pid)
		if err != nil {
			continue
		}
		for i := range r.Images {
			out[trace.ImageID(r.Images[i].ID)] = r.Images[i].Sites
		}
		r.Close()
	}
	return out
}

// reapply puts settings into what has come since, until the session ends.
func (s *session) reapply(stop <-chan struct{}) {
	tick := time.NewTicker(quietTime / 4)
	defer tick.Stop()
	for {
		select {
		case <-s.setting.again:
		case <-tick.C:
			s.setting.mu.Lock()
			if s.setting.due() && !s.end.winding.Load() {
				_, _, _ = s.settle(1) // what cannot be settled costs its jumps
			}
			if !s.end.winding.Load() && s.missed() {
				s.come()
			}
			s.setting.mu.Unlock()
			continue
		case <-stop:
			return
		}
		s.setting.mu.Lock()
		if s.setting.ever && !s.end.winding.Load() {
			_, err := s.applyTo(&s.setting.now, false, false, true)
			s.did(true) // later, if not now
			s.behind(err)
		}
		s.setting.mu.Unlock()
	}
}

// behind notes whether settings could not be put into a process, which is tried again until it is done. The caller has the lock.
func (s *session) behind(err error) {
	switch {
	case err == nil && s.setting.failing:
		s.logf("all processes are recorded as it was set")
	case err != nil && !s.setting.failing:
		s.logf("not recorded as it was set yet: %v", err)
	}
	if s.setting.failing = err != nil; err != nil {
		time.AfterFunc(quietTime/4, s.come)
	}
}

// come notes that a process has an image more.
func (s *session) come() {
	select {
	case s.setting.again <- struct{}{}:
	default:
	}
}

// noFunction is said where a pattern matches none.
const noFunction = "no function matches that was chosen when the recording began, or that can be added now (record -F, --available)"

// unmatched is why a pattern matches no function of images: if there are none, no process is there to look into.
func unmatched(images map[trace.ImageID]int) string {
	if len(images) == 0 {
		return errNothingToChange.Error()
	}
	return noFunction
}

// rulesOf understands the patterns of a command. Each must match a function that there is.
func (s *session) rulesOf(c *command, images map[trace.ImageID]int) (rules []rule, err *ControlError) {
	if s.o.Match == nil {
		return nil, &ControlError{c.name.at, "functions have no names in this recording"}
	}
	for _, v := range c.values {
		match, err := s.o.Match(v.text)
		if err != nil {
			return nil, &ControlError{v.at, err.Error()}
		}
		matched := false
		for image := range images {
			ids, err := match(image)
			if err != nil {
				return nil, &ControlError{v.at, err.Error()}
			}
			matched = matched || len(ids) > 0
		}
		if !matched {
			return nil, &ControlError{v.at, unmatched(images)}
		}
		rules = append(rules, rule{adds: c.op.text != "-=", pattern: v.text, ids: match})
	}
	return rules, nil
}

// set follows commands that set something, all of them or none.
func (s *session) set(cs []command) (answer string, err *ControlError) {
	s.setting.mu.Lock()
	defer s.setting.mu.Unlock()
	if s.end.winding.Load() {
		return "", &ControlError{cs[0].name.at, ErrOver.Error()}
	}
	images := s.switchable()
	if err := s.withMore(images, patternsOf(cs)); err != nil {
		return "", &ControlError{cs[0].name.at, err.Error()}
	}
	defer s.did(false) // if it is not applied
	to, clear, paused := s.setting.now, false, false
	for i := range cs {
		c := &cs[i]
		switch c.name.text {
		case "tracing_on":
			to.paused, paused = !c.on, true
		case setTrigger, setArguments, setResults:
			next, err := s.withDoing(to.doing, c.name.text, c.op.text, c.values)
			if err != nil {
				return "", err
			}
			to.doing = next
		case "syscalls":
			to.silent = !c.on
		case "current_tracer":
			name := c.values[0].text
			if !slices.Contains(s.tracers(), name) {
				return "", &ControlError{c.values[0].at, s.unprepared(name)}
			}
			if to.nop = name == tracerNop; !to.nop {
				to.flat = name != s.info.Tracer
			}
		case "max_graph_depth":
			to.depth = c.number
		case "tracing_thresh":
			to.thresh = c.threshold
		default:
			if err := s.takeTriggers(c, &to); err != nil {
				return "", err
			}
			if c.op.text != "" && len(c.values) == 0 && c.triggers {
				continue
			}
			rules, err := s.rulesOf(c, images)
			if err != nil {
				return "", err
			}
			of := map[string]*choice{"set_ftrace_filter": &to.filter, "set_ftrace_notrace": &to.notrace,
				"set_graph_function": &to.roots}[c.name.text]
			next := of.with(c.op.text, rules)
			if len(next.rules) > maxRules {
				return "", &ControlError{c.name.at, fmt.Sprintf("%s has more than %d patterns", c.name.text, maxRules)}
			}
			if *of = next; c.name.text == "set_ftrace_filter" {
				clear = true
			} else if c.op.text == "-=" && !next.only {
				return "", &ControlError{c.op.at, c.name.text + " has no functions that can be taken away"}
			} else {
				of.only = len(next.rules) > 0
			}
		}
	}
	s.setting.left = nil
	same := !slices.ContainsFunc(cs, func(c command) bool { return c.name.text != "tracing_on" && c.name.text != "syscalls" })
	if err := s.apply(to, clear, paused, same); err != nil {
		return "", &ControlError{cs[0].name.at, err.Error()}
	}
	return strings.Join(slices.DeleteFunc(append(s.setting.left, s.waiting()), func(s string) bool { return s == "" }), "; "), nil
}

// tracing tells whether a process records anything: triggers have it pause and go on, too.
func (s *session) tracing() bool {
	for _, p := range s.changeable() {
		r, err := tracee.OpenRuntime(p.Pid)
		if err != nil {
			continue
		}
		on, err := r.Traced()
		r.Close()
		if err == nil && on {
			return true
		}
	}
	return false
}

// tell answers what a setting is.
func (s *session) tell(name string) string {
	s.setting.mu.Lock()
	defer s.setting.mu.Unlock()
	now := &s.setting.now
	bit := map[bool]string{true: "1", false: "0"}
	switch name {
	case "tracing_on":
		return bit[s.tracing()]
	case setTrigger, setArguments, setResults:
		return now.doingText(name)
	case "syscalls":
		return bit[!now.silent]
	case "current_tracer":
		if now.nop {
			return tracerNop
		}
		if now.flat {
			return tracerFunction
		}
		return s.info.Tracer
	case "set_ftrace_filter":
		return now.filter.String()
	case "set_ftrace_notrace":
		return now.notrace.String()
	case "set_graph_function":
		return now.roots.String()
	case "max_graph_depth":
		return fmt.Sprint(now.depth)
	case "tracing_thresh":
		return now.thresh.String()
	}
	return ""
}

// status is all settings, as commands that make them.
func (s *session) status() string {
	var all []string
	for _, name := range []string{"tracing_on", "current_tracer", "set_ftrace_filter", "set_ftrace_notrace", "set_graph_function",
		"max_graph_depth", "tracing_thresh", "syscalls", setTrigger, setArguments, setResults} {
		all = append(all, strings.TrimSpace(name+" = "+s.tell(name)))
	}
	return strings.Join(all, "; ")
}

// tracers are those between which this recording can be switched.
func (s *session) tracers() []string {
	if s.info.Tracer == tracerGraph {
		return []string{tracerNop, tracerFunction, tracerGraph}
	}
	return []string{tracerNop, s.info.Tracer}
}

// unprepared says why a tracer is none of these.
func (s *session) unprepared(tracer string) string {
	why := "the program is prepared for " + strings.Join(s.tracers(), ", ")
	if s.info.Tracer == tracerFunction && tracer == tracerGraph {
		why += " (record -T " + tracerFunction + "," + tracerGraph + " prepares for both)"
	}
	return why
}

// tracerNames are the tracers that programs can be prepared for.
func tracerNames() []string { return patch.Tracers() }
