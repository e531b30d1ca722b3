//go:build linux

package session

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
	"github.com/fentry-dev/fentry/trace"
)

// Functions that are added while processes run.
//
// A recording prepares the functions that it was told of. Who names others while it goes on has them planned then, as an image
// of its own beside the one that they are of: with its own thunks, names and ids. They are off until a filter, a root or
// something that is done at calls has them on, and are put into a process only then. They stay there, off, when nobody wants
// them any more, and are used again.

// An Addition is a plan of more functions of an image.
type Addition struct {
	Image trace.ImageID // which these are, as they are an image of their own
	Of    trace.ImageID // which they are functions of; 0: no plan was of that
	Sites int           // how many they are
	// Memory returns the plan for a place, as an address of the image; 0: where most processes have room.
	Memory func(at uint64) (*patch.Memory, error)

	library string          // the key of that which they are in; "": the program
	wanted  bool            // some of them are on
	said    bool            // that they can come later than the library
	rooms   map[uint64]bool // where there was room for them
	full    bool            // there were too many
}

// mostRooms bounds how many places functions are planned for: each plan takes memory of the recorder, and of processes.
const mostRooms = 60

// additions are those of a session.
type additions struct {
	all  []*Addition
	made []tracee.Plan // what has been put into a process
}

// find returns what an image is; nil: none of these.
func (a *additions) find(image trace.ImageID) *Addition {
	if a == nil {
		return nil
	}
	for _, x := range a.all {
		if x.Image == image {
			return x
		}
	}
	return nil
}

// plans are what processes can have.
func (a *additions) plans() []tracee.Plan {
	if a == nil {
		return nil
	}
	return a.made
}

// use notes that processes have a plan.
func (a *additions) use(p tracee.Plan) {
	if !slices.Contains(a.made, p) {
		a.made = append(a.made, p)
	}
}

// adds tells whether a command can have functions recorded that were not before.
func (c *command) adds() bool {
	return (c.op.text == "=" || c.op.text == "+=") && (c.name.text == "set_ftrace_filter" || c.name.text == "set_graph_function")
}

// patternsOf are the patterns of commands that can have more functions recorded.
func patternsOf(cs []command) (patterns []string) {
	for i := range cs {
		for _, v := range cs[i].values {
			if cs[i].adds() && ftraceCommand().FindString(v.text) == "" {
				patterns = append(patterns, v.text)
			}
		}
	}
	return patterns
}

// withMore adds to images those of functions that patterns choose and that have not been planned, and of those that were added
// before. The caller has the lock.
func (s *session) withMore(images map[trace.ImageID]int, patterns []string) error {
	added := s.setting.now.added
	if added == nil {
		return nil
	}
	if s.o.More != nil && len(patterns) > 0 {
		if err := s.more(images, patterns); err != nil {
			return err
		}
	}
	for _, a := range added.all {
		if _, ok := images[a.Of]; ok || a.Of == 0 {
			images[a.Image] = a.Sites
		}
	}
	return nil
}

// more has functions planned.
func (s *session) more(images map[trace.ImageID]int, patterns []string) error {
	added, planned := s.setting.now.added, s.plannedLibraries()
	for _, image := range slices.Sorted(maps.Keys(images)) {
		of := added.find(image)
		if of != nil && of.Of != 0 {
			continue
		}
		a, err := s.o.More(image, patterns)
		if err != nil {
			return err
		}
		if a == nil {
			continue
		}
		if a.library = planned[uint64(image)]; of != nil {
			a.library = of.library
		}
		added.all = append(added.all, a)
	}
	if s.o.MoreOf == nil || !slices.ContainsFunc(patterns, func(p string) bool { return strings.Contains(p, ":") }) {
		return nil
	}
	seen := make(map[string]bool)
	for _, a := range added.all {
		seen[a.library] = true
	}
	for _, key := range planned {
		seen[key] = true
	}
	for _, p := range s.changeable() {
		if err := s.moreLibraries(p.Pid, seen, patterns); err != nil {
			return err
		}
	}
	return nil
}

// plannedLibraries are the keys of libraries that have plans, by image: those that were attached to, and patched copies.
func (s *session) plannedLibraries() map[uint64]string {
	keys := make(map[uint64]string)
	if s.attached != nil {
		for _, p := range s.attached.all {
			if p.at != nil {
				maps.Copy(keys, p.at.Libraries())
			}
		}
	}
	for _, p := range s.changeable() {
		r, err := tracee.OpenRuntime(p.Pid)
		if err != nil {
			continue
		}
		if all, err := tracee.MappedLibraries(p.Pid); err == nil {
			maps.Copy(keys, r.Within(all))
		}
		r.Close()
	}
	return keys
}

// moreLibraries has functions planned of libraries that are mapped and that no plan is of.
func (s *session) moreLibraries(pid int, seen map[string]bool, patterns []string) error {
	all, err := tracee.MappedLibraries(pid)
	if err != nil {
		return nil // it ends
	}
	for _, l := range all {
		if seen[l.Key()] {
			continue
		}
		seen[l.Key()] = true
		f, err := openLibrary(l)
		if err != nil {
			continue
		}
		a, err := s.o.MoreOf(l.Path, f, l.At, patterns)
		f.Close()
		if err != nil {
			return err
		}
		if a != nil {
			a.library = l.Key()
			s.setting.now.added.all = append(s.setting.now.added.all, a)
		}
	}
	return nil
}

// withRoots is what is chosen, and graph roots: whoever names one that was not planned wants it recorded.
func (s *settings) withRoots(image trace.ImageID, in func(uint32) bool) (func(id uint32) bool, error) {
	roots, err := s.roots.in(image, true)
	return func(id uint32) bool { return in(id) || roots(id) }, err
}

// wants tells whether any function of an addition is on.
func (s *settings) wants(a *Addition) (bool, error) {
	on, err := s.on(a.Image)
	if err != nil {
		return false, err
	}
	for id := range uint32(a.Sites) {
		if on == nil || on(id+1) {
			return true, nil
		}
	}
	return false, nil
}

// addIn puts functions into a process that are on and not there.
func (s *session) addIn(r *tracee.Runtime, p procfs.Process, to *settings) error {
	if to.added == nil {
		return nil
	}
	did := false
	for _, a := range to.added.all {
		lacks, again := a.lacks(r, to.added)
		if !lacks && a.library == "" {
			continue
		}
		wants, err := to.wants(a)
		if a.wanted = wants; err == nil && lacks && wants {
			if r.Has(uint64(a.Image)) && !a.said {
				a.said = true
				s.logf("process %d: %s was loaded again: what it does before functions are added to it again is not recorded", p.Pid, a.name())
			}
			err = s.addTo(p, a, again)
			did = did || err == nil
		}
		if err != nil && !errors.Is(err, tracee.ErrNotPlanned) {
			return fmt.Errorf("functions that were not prepared cannot be added: %w", err)
		}
	}
	if !did {
		return nil
	}
	s.setting.quiet = time.Now() // those that are off have sites now
	return r.Again()
}

// lacks tells whether a process is to be given functions, if they are wanted. again is the plan whose memory it has already.
func (a *Addition) lacks(r *tracee.Runtime, added *additions) (lacks bool, again *tracee.Plan) {
	switch {
	case a.Of != 0 && !r.Has(uint64(a.Of)):
		return false, nil
	case a.library == "":
		return !r.Has(uint64(a.Image)), nil
	}
	return r.Lacks(uint64(a.Image), a.library, added.plans())
}

// name is what people call that which they are functions of.
func (a *Addition) name() string { return path.Base(a.library) }

// missed tells whether a process has a library, and not the functions that were added to it: it was loaded again, or since. Nobody
// tells of that.
func (s *session) missed() bool {
	added := s.setting.now.added
	if added == nil || !slices.ContainsFunc(added.all, func(a *Addition) bool { return a.wanted && a.library != "" }) {
		return false
	}
	for _, p := range s.changeable() {
		r, err := tracee.OpenRuntime(p.Pid)
		if err != nil {
			continue
		}
		missed := slices.ContainsFunc(added.all, func(a *Addition) bool {
			lacks, _ := a.lacks(r, added)
			return lacks && a.wanted && a.library != ""
		})
		if r.Close(); missed {
			return true
		}
	}
	return false
}

// addTo puts functions into a process. again is the plan whose memory it has already; nil: it has none.
func (s *session) addTo(p procfs.Process, a *Addition, again *tracee.Plan) error {
	at := &tracee.Attachment{}
	if s.attached != nil {
		of := s.attached.of(p.Pid)
		if of == nil {
			return unknown(p, "its parent is not known any more")
		}
		if of.at.In(p.Pid) > 0 {
			at = of.at // which is taken out with all of it
		}
	}
	if again != nil {
		return at.Again(p.Pid, *again)
	}
	room := uint64(0)
	for tries := 1; ; tries++ {
		if a.library != "" {
			var err error
			if room, err = s.roomIn(p.Pid, a); err != nil {
				return err
			}
		}
		m, err := a.Memory(room)
		if err != nil {
			return err
		}
		plan := tracee.Plan{Memory: m, In: a.library}
		foreign, err := at.Add(p.Pid, plan)
		var taken *tracee.TakenError
		if errors.As(err, &taken) && tries < placeTries {
			room = taken.Room
			continue
		}
		if err == nil {
			s.setting.now.added.use(plan)
			s.leave(p, foreign)
		}
		return err
	}
}

// leave says which functions are not added, as somebody else has changed the instructions: who follows what a process executes.
func (s *session) leave(p procfs.Process, edits []arch.Edit) {
	if len(edits) == 0 {
		return
	}
	s.setting.left = append(s.setting.left, fmt.Sprintf("process %d: not recorded, as their first instructions have been changed already, "+
		"to follow what it executes (record --no-inherit): %s", p.Pid, places(edits)))
	s.logf("%s", s.setting.left[len(s.setting.left)-1])
}

// roomIn is where there is room in a process for functions of a library.
func (s *session) roomIn(pid int, a *Addition) (uint64, error) {
	all, err := tracee.MappedLibraries(pid)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(l *tracee.Library) bool { return l.Key() == a.library })
	switch {
	case i < 0:
		return 0, tracee.ErrNotPlanned // it has not loaded it
	case all[i].At == 0:
		return 0, fmt.Errorf("there is no room for the tracer behind %s", all[i].Path)
	}
	at := all[i].At
	if !a.rooms[at] && len(a.rooms) == mostRooms {
		if !a.full {
			s.logf("%s is loaded at ever other places: functions are not added to it where it was not before", a.name())
		}
		a.full = true
		return 0, tracee.ErrNotPlanned
	}
	if a.rooms == nil {
		a.rooms = make(map[uint64]bool)
	}
	a.rooms[at] = true
	return at, nil
}
