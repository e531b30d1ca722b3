//go:build linux

package tracefs

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/trace"
)

// FS is the state behind the files.
type FS struct {
	target    Target
	functions *functions

	mu          sync.Mutex // held while something is read or changed
	top         *instance
	below       map[string]*instance // instances/
	cpus        map[taskID]int       // the number that each thread has in place of a processor's
	comms       map[int]string       // names of threads, by id
	installed   []bool               // functions that are on; nil: that is not known
	events      *events
	syscalls    Syscaller        // nil: there are no events
	sysOn       bool             // system calls are recorded
	scanned     map[taskID]place // by task, how far the look for probes has come
	scannedFrom uint64           // counter: what is older was not
	// scannedUntil is a counter before which nothing is to be looked at any more.
	scannedUntil uint64
	profile      profile
	images       map[trace.ImageID]bool // that were looked at for functions
	console      *console               // gets what is dumped; nil: nobody does
	failed       string                 // why the last dump, or snapshot, could not be made
	news         uint64                 // counts what may have made something to show; see hear
	polled       map[*pipe]bool         // those that somebody polls and in which there is nothing
	pipes        map[*pipe]bool         // those that are open
	last         bool                   // nothing comes any more
	taken        uint64                 // counts what was taken from pipes

	stop chan struct{}
}

// clocks are those of trace_clock, the first of which is chosen at first.
const clockLocal = "local"

var clocks = []string{"mono", clockLocal}

// newFS returns the state of a mount at its beginning: nothing is recorded.
func newFS(t Target) (*FS, error) {
	fs := &FS{
		target: t, functions: &functions{all: t.Functions()}, images: make(map[trace.ImageID]bool), below: make(map[string]*instance),
		cpus: make(map[taskID]int), comms: make(map[int]string), scanned: make(map[taskID]place), stop: make(chan struct{}),
		news: 1, polled: make(map[*pipe]bool), pipes: make(map[*pipe]bool),
	}
	fs.events = noEvents
	if s, ok := t.(Syscaller); ok {
		fs.syscalls, fs.sysOn, fs.events = s, true, eventsOf(syscalls.MachineOf(runtime.GOARCH))
	}
	fs.top = fs.newInstance("")
	if err := fs.install(); err != nil {
		return nil, err
	}
	fs.top.clear()
	return fs, nil
}

// instances are all of them.
func (fs *FS) instances() []*instance {
	all := []*instance{fs.top}
	for _, in := range fs.below {
		all = append(all, in)
	}
	return all
}

// install switches functions as the instances need them.
func (fs *FS) install() error {
	need := make([]bool, len(fs.functions.all))
	for _, in := range fs.instances() {
		set := in.epochs.now()
		for i := range need {
			need[i] = need[i] || set.records(i)
		}
		for _, p := range in.probes {
			if p.fn >= 0 {
				need[p.fn] = true
			}
		}
	}
	if fs.profile.on {
		set := fs.top.epochs.now()
		for i := range need {
			need[i] = need[i] || set.chosen(i)
		}
	}
	if err := fs.installEvents(); err != nil {
		return err
	}
	if fs.installed != nil && slices.Equal(need, fs.installed) {
		return nil
	}
	on := make(map[trace.ImageID]map[uint32]bool)
	for i, fn := range fs.functions.all {
		if on[fn.Image] == nil {
			on[fn.Image] = make(map[uint32]bool)
		}
		on[fn.Image][fn.ID] = need[i]
	}
	if err := fs.target.Switch(func(image trace.ImageID, id uint32) bool { return on[image][id] }); err != nil {
		return err
	}
	fs.installed = need
	return nil
}

// installEvents switches system calls as the instances need them.
func (fs *FS) installEvents() error {
	if fs.syscalls == nil {
		return nil
	}
	need := false
	for _, in := range fs.instances() {
		set := in.epochs.now()
		need = need || set.on && set.events.any() || slices.ContainsFunc(in.probes, (*probe).wantsEvents)
	}
	if need == fs.sysOn {
		return nil
	}
	if err := fs.syscalls.Syscalls(need); err != nil {
		return err
	}
	fs.sysOn = need
	return nil
}

// mostCPUs bounds how many threads have numbers of their own.
const mostCPUs = 1 << 16

// cpu is the number that a thread has in place of a processor's: threads are numbered as they are seen.
func (fs *FS) cpu(k *trace.Task) int { return fs.cpus[idOf(k)] }

// look notes which threads there are.
func (fs *FS) look(t *trace.Trace) {
	for _, k := range t.Tasks {
		id := idOf(k)
		if _, ok := fs.cpus[id]; !ok && len(fs.cpus) < mostCPUs {
			fs.cpus[id] = len(fs.cpus)
		}
		if k.Comm != "" && (len(fs.comms) < mostCPUs || fs.comms[k.TID] != "") {
			fs.comms[k.TID] = k.Comm
		}
	}
}

// copy returns a copy of what is newer than a counter in the buffer.
func (fs *FS) copy(from uint64) (*trace.Trace, error) {
	t, err := fs.target.Open(from)
	if errors.Is(err, ErrOver) {
		return nil, errors.Join(err, syscall.ENODEV)
	}
	if err != nil {
		return nil, err
	}
	if err := fs.more(t); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// refresh looks whether functions have come or gone.
func (fs *FS) refresh() error {
	t, err := fs.copy(fs.target.Now())
	if err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	if images, err := fs.target.Images(); err == nil { // else all are listed
		fs.functions.look(images)
	}
	return nil
}

// more looks for functions of images that have come: libraries that were loaded meanwhile. Filters that name their modules
// hold for them from now on.
func (fs *FS) more(t *trace.Trace) error {
	come := false
	for i := range t.Images {
		come = come || !fs.images[t.Images[i].ID]
		fs.images[t.Images[i].ID] = true
	}
	if !come || !fs.functions.add(fs.target.Functions()) {
		return nil
	}
	fs.installed = nil
	for _, in := range fs.instances() {
		if err := in.change(func(s *settings) {
			for w := range filterNoGraph + 1 {
				set := w.of(s)
				*set = fs.functions.come(*set)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// open returns a copy of the buffer, with everything that calls in it have done. The caller has the lock.
func (fs *FS) open() (*trace.Trace, error) {
	if err := fs.scan(); err != nil {
		return nil, err
	}
	t, err := fs.copy(0)
	if err != nil {
		return nil, err
	}
	fs.look(t)
	for _, in := range fs.instances() {
		if len(in.dumps) > 0 {
			err = errors.Join(err, in.dump(t))
		}
		if in.asked {
			err = errors.Join(err, in.keep(t))
		}
	}
	if err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// fails says on the console, once, why something cannot be dumped or kept, as there may be nobody who reads a file.
func (fs *FS) fails(err error) {
	text := ""
	if err != nil && !errors.Is(err, ErrOver) {
		text = fmt.Sprintf("# no dump, or no snapshot: %v\n", err)
	}
	if text != fs.failed {
		fs.console.put([]byte(text))
		fs.failed = text
	}
}

// How often calls of functions with probes are looked for, and readers of trace_pipe look for events, at least. A look
// that takes long is followed by a longer pause.
const (
	tick     = 20 * time.Millisecond
	tickPart = 5
)

// watch looks for calls of functions with probes, and for whoever polls, until the end.
func (fs *FS) watch() {
	for {
		began := time.Now()
		fs.mu.Lock()
		_ = fs.scan() // who reads next gets the error
		if slices.ContainsFunc(fs.instances(), (*instance).wantsCopy) {
			t, err := fs.open() // what could not be made is tried again
			if err == nil {
				t.Close()
			}
			fs.fails(err)
		}
		_ = fs.count()
		wake := fs.tell()
		fs.mu.Unlock()
		for _, wake := range wake {
			wake()
		}
		select {
		case <-fs.stop:
			fs.mu.Lock()
			wake := fs.tell()
			fs.mu.Unlock()
			for _, wake := range wake {
				wake()
			}
			return
		case <-time.After(max(tick, tickPart*time.Since(began))):
		}
	}
}
