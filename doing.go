//go:build linux

package fentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/triggers"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/trace"
)

// What is done at calls of functions while they are recorded, as whoever controls a recording says it: triggers, and what
// is captured. Settings have the names that session has for them.
//
// Readers are told in all ways in which a function's calls were captured, and how many words each of them makes, by which
// they tell one from the other (arguments.Capture). They are told when a program's symbols are written again.

// doings are those of a run.
type doings struct {
	r *run
	l *tables

	mu    sync.Mutex
	notes captureNotes // what readers are told besides what was planned
	asked captureNotes // the same once what was asked for since is done
	round int          // of asked: another one when that was not done
}

// captureNotes are what readers are told of captures, by image and function.
type captureNotes map[trace.ImageID]map[uint32]string

// add adds those of an image.
func (n captureNotes) add(image trace.ImageID, more map[uint32]string) {
	if n[image] == nil {
		n[image] = make(map[uint32]string)
	}
	maps.Copy(n[image], more)
}

// did takes note of whether what was asked for is done. It returns the images of which readers have to be told more.
func (d *doings) did(done bool) (images []trace.ImageID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asked) > 0 && !done {
		d.round++
	}
	for image, notes := range d.asked {
		maps.DeleteFunc(notes, func(id uint32, note string) bool { return d.notes[image][id] == note })
		if done && len(notes) > 0 {
			d.notes.add(image, notes)
			images = append(images, image)
		}
	}
	d.asked = make(captureNotes)
	return images
}

// understand understands a spec.
func (d *doings) understand(setting, spec string) (*session.Doing, error) {
	switch setting {
	case "arguments", "results":
		return d.capture(setting == "results", spec)
	}
	return d.l.trigger(spec)
}

// trigger understands a trigger.
func (l *tables) trigger(spec string) (*session.Doing, error) {
	t, err := triggers.Parse(spec)
	var at *triggers.Error
	if errors.As(err, &at) {
		return nil, &session.SpecError{At: at.At, Why: at.Why}
	}
	if err != nil {
		return nil, err
	}
	acts := triggerActs(t)
	if acts == nil {
		return nil, errors.New("colors are the readers' to know: record --trigger")
	}
	match, err := l.match(t.Functions)
	if err != nil {
		return nil, err
	}
	return &session.Doing{Functions: t.Functions, Of: func(image trace.ImageID) (map[uint32][]patch.Act, error) {
		ids, err := match(image)
		all := make(map[uint32][]patch.Act, len(ids))
		for _, id := range ids {
			all[id] = acts
		}
		return all, err
	}}, nil
}

// capture understands what is captured of functions.
func (d *doings) capture(result bool, text string) (*session.Doing, error) {
	spec, err := arguments.ParseSpec(text)
	if err != nil {
		return nil, err
	}
	o := Options{Plan: d.r.o.Plan, Logf: d.r.o.Logf}
	if result {
		o.Results = []arguments.Spec{spec}
	} else {
		o.Arguments = []arguments.Spec{spec}
	}
	c, err := newCapturing(&o)
	if err != nil {
		return nil, err
	}
	known := make(map[trace.ImageID]*imageCaptures) // processes have the same images
	// What can be captured of no function is refused, of some said to the recorder.
	functions, refused := 0, []error(nil)
	c.tried = func(why error) { // with d.mu
		if functions++; why != nil {
			refused = append(refused, why)
		}
	}
	what := &session.Doing{Functions: spec.Pattern, Refused: func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if functions == 0 || len(refused) < functions {
			return nil
		}
		return refused[0]
	}}
	if spec.Errno() {
		what.Errno = func(image trace.ImageID) (distance int64, err error) {
			_, plan, err := d.planOf(c, image)
			if plan == nil || err != nil {
				return 0, err
			}
			err = mapped.Guard(func() error { distance = plan.Errno(); return nil })
			return distance, err
		}
	}
	what.Of = func(image trace.ImageID) (acts map[uint32][]patch.Act, err error) {
		p, plan, err := d.planOf(c, image)
		if plan == nil || p.File == nil || err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		of := known[image]
		if of == nil || of.round != d.round {
			err = mapped.Guard(func() (err error) {
				of, err = d.captures(c, image, p, plan)
				return err
			})
		}
		if err != nil {
			return nil, err
		}
		known[image] = of
		return of.acts, nil
	}
	return what, nil
}

// imageCaptures are those of an image, by local id, and in which round it was asked for them.
type imageCaptures struct {
	acts  map[uint32][]patch.Act
	round int
}

// captures are those of an image. What they mean is for its symbols to say once they are made. The caller has the lock.
func (d *doings) captures(c *capturing, image trace.ImageID, p *Program, plan *patch.Plan) (_ *imageCaptures, err error) {
	all := &imageCaptures{round: d.round}
	o := plan.Options
	o.Actions = nil
	c.plan(p, &o)
	if o.Actions == nil {
		return all, nil
	}
	rule := o.Actions.Rules[0]
	planned, notes := plan.Notes(), make(map[uint32]string)
	all.acts = make(map[uint32][]patch.Act)
	for i := range plan.Functions {
		fn := &plan.Functions[i]
		if fn.ID == 0 || fn.Site == nil {
			continue
		}
		of := rule.Of(fn.Site)
		if len(of) == 0 {
			continue
		}
		old := planned[fn.ID]
		for _, now := range []captureNotes{d.notes, d.asked} {
			if now, ok := now[image][fn.ID]; ok {
				old = now
			}
		}
		all.acts[fn.ID] = of
		more := rule.Note(fn.Site)
		if more == "" {
			continue // it is only left out
		}
		if notes[fn.ID], all.acts[fn.ID], err = addCapture(old, more, of); err != nil {
			return nil, &session.SpecError{Why: fmt.Sprintf("%s: %v", fn.Name, err)}
		}
	}
	d.asked.add(image, notes)
	return all, nil
}

// planOf is the plan of an image; nil: it has none. That of a library's patched copy has to be made, so it is only if something is to
// be done at calls of its functions.
func (d *doings) planOf(c *capturing, image trace.ImageID) (*Program, *patch.Plan, error) {
	if p, plan := d.r.planOf(image); plan != nil {
		return p, plan, nil
	}
	for _, filter := range c.meant() {
		ids, err := d.l.matching(filter)(image)
		if err != nil {
			return nil, nil, err
		}
		if len(ids) > 0 {
			return d.r.libraries.planOf(image)
		}
	}
	return nil, nil, nil
}

// addCapture is what readers are told of a function that is captured in one way more, and the acts with which it is.
func addCapture(old, more string, acts []patch.Act) (string, []patch.Act, error) {
	if old == "" {
		return more, acts, nil
	}
	var a, b arguments.Capture
	if err := errors.Join(json.Unmarshal([]byte(old), &a), json.Unmarshal([]byte(more), &b)); err != nil {
		return "", nil, err
	}
	switch atEntry, atExit := a.Add(&b); {
	case atEntry != nil:
		return "", nil, fmt.Errorf("its arguments %w", atEntry)
	case atExit != nil:
		return "", nil, fmt.Errorf("its results %w", atExit)
	}
	acts, err := padded(acts, map[stub.ActionKind]int{stub.ActArgs: b.EntryWords, stub.ActResult: b.ExitWords})
	return captureText(&a), acts, err
}

// padded are acts that capture so many words, by their kind.
func padded(acts []patch.Act, words map[stub.ActionKind]int) ([]patch.Act, error) {
	out := slices.Clone(acts)
	for i := range out {
		n, ok := words[out[i].Kind]
		if !ok {
			continue
		}
		data, more, err := arguments.PadWords(out[i].Data, n)
		if err != nil {
			return nil, err
		}
		if more > 0 { // words of zeros are no registers
			out[i].Data, out[i].Words, out[i].Plain = data, out[i].Words+more, 0
		}
	}
	return out, nil
}

// tells reports whether readers are told of captures of an image that were not planned.
func (d *doings) tells(image trace.ImageID) bool {
	if d == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.notes[image]) > 0
}

// told are the captures of an image, of which some were planned.
func (d *doings) told(image trace.ImageID, planned map[uint32]string) map[uint32]string {
	if d == nil {
		return planned
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.notes[image]) == 0 {
		return planned
	}
	all := make(map[uint32]string)
	maps.Copy(all, planned)
	maps.Copy(all, d.notes[image])
	return all
}

// planOf finds the plan of an image.
func (r *run) planOf(id trace.ImageID) (*Program, *patch.Plan) {
	switch {
	case r.kept.is(id):
		return r.p, r.planKept()
	case r.kept == nil && r.main != nil && trace.ImageID(r.main.ImageID) == id:
		return r.p, r.main
	}
	for _, e := range []*executed{r.executed, r.followed} {
		if p, plan := e.planOf(id); plan != nil {
			return p, plan
		}
	}
	return r.added.planOf(id)
}

// planOf finds the plan of an image; nil: it is none of these.
func (e *executed) planOf(id trace.ImageID) (*Program, *patch.Plan) {
	if x := e.fileOf(id); x != nil {
		return e.again(x)
	}
	return nil, nil
}

// fileOf finds the file of an image; nil: it is none of these.
func (e *executed) fileOf(id trace.ImageID) *executedFile {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range slices.Concat(e.order, e.loaded.all()) {
		if x.plan != nil && trace.ImageID(x.plan.ImageID) == id || x.kept.is(id) {
			return x
		}
	}
	return nil
}
