//go:build linux

package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"

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
	Of    trace.ImageID // which they are functions of
	Sites int           // how many they are
	// Memory returns the plan for a place, as an address of the image; 0: where most processes have room.
	Memory func(at uint64) (*patch.Memory, error)
}

// additions are those of a session.
type additions struct {
	all  []*Addition
	made []*patch.Memory // plans that have been put into a process
}

// has tells whether an image is one of them.
func (a *additions) has(image trace.ImageID) bool {
	if a == nil {
		return false
	}
	for _, x := range a.all {
		if x.Image == image {
			return true
		}
	}
	return false
}

// memories are the plans that processes can have.
func (a *additions) memories() []*patch.Memory {
	if a == nil {
		return nil
	}
	return a.made
}

// use notes that processes have a plan.
func (a *additions) use(m *patch.Memory) {
	for _, o := range a.made {
		if o == m {
			return
		}
	}
	a.made = append(a.made, m)
}

// adds tells whether a command can have functions recorded that were not before.
func (c *command) adds() bool {
	return (c.op.text == "=" || c.op.text == "+=") && (c.name.text == "set_ftrace_filter" || c.name.text == "set_graph_function")
}

// patternsOf are the patterns of commands that can have more functions recorded.
func patternsOf(cs []command) (patterns []string) {
	for i := range cs {
		for _, v := range cs[i].values {
			if cs[i].adds() && ftraceCommand.FindString(v.text) == "" {
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
		for _, image := range slices.Sorted(maps.Keys(images)) {
			if added.has(image) {
				continue
			}
			a, err := s.o.More(image, patterns)
			if err != nil {
				return err
			}
			if a != nil {
				added.all = append(added.all, a)
			}
		}
	}
	for _, a := range added.all {
		if _, ok := images[a.Of]; ok {
			images[a.Image] = a.Sites
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
		if !r.Has(uint64(a.Of)) || r.Has(uint64(a.Image)) {
			continue
		}
		wants, err := to.wants(a)
		if err == nil && wants {
			did, err = true, s.addTo(p, a)
		}
		if err != nil {
			return fmt.Errorf("functions that were not prepared cannot be added: %w", err)
		}
	}
	if !did {
		return nil
	}
	return r.Again()
}

// addTo puts functions into a process.
func (s *session) addTo(p procfs.Process, a *Addition) error {
	at := &tracee.Attachment{}
	if s.attached != nil {
		of := s.attached.of(p.Pid)
		if of == nil || of.at == nil {
			return errors.New("its parent is not known any more")
		}
		at = of.at
	}
	room := uint64(0)
	for tries := 1; ; tries++ {
		m, err := a.Memory(room)
		if err != nil {
			return err
		}
		err = at.Add(p.Pid, uint64(a.Of), m)
		var taken *tracee.TakenError
		if errors.As(err, &taken) && tries < placeTries {
			room = taken.Room
			continue
		}
		if err == nil {
			s.setting.now.added.use(m)
		}
		return err
	}
}
