//go:build linux

package fentry

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/triggers"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// What is done at calls of functions while they are recorded, as whoever controls a recording says it: triggers, and what
// is captured. Settings have the names that session has for them.
//
// Readers are told once what a function's captures mean, so of a function the same is captured as long as a recording goes
// on, or nothing: arguments can come to results, but not others. They are told when a program's symbols are written again.

// doings are those of a run.
type doings struct {
	r *run
	l *tables

	mu    sync.Mutex
	notes map[trace.ImageID]map[uint32]string // what readers are told besides what was planned
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
	if spec.Errno() && (d.r.capturing == nil || !d.r.capturing.errno) {
		return nil, errors.New("errno has to be asked for when the recording begins")
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
	var mu sync.Mutex
	known := make(map[trace.ImageID]map[uint32][]patch.Act) // processes have the same images
	return &session.Doing{Functions: spec.Pattern, Of: func(image trace.ImageID) (acts map[uint32][]patch.Act, err error) {
		mu.Lock()
		defer mu.Unlock()
		acts, ok := known[image]
		if !ok {
			err = mapped.Guard(func() (err error) {
				acts, err = d.captures(c, image)
				return err
			})
			if err == nil {
				known[image] = acts
			}
		}
		return acts, err
	}}, nil
}

// captures are those of an image, by local id. What they mean is for its symbols to say from now on.
func (d *doings) captures(c *capturing, image trace.ImageID) (map[uint32][]patch.Act, error) {
	p, plan := d.r.planOf(image)
	if plan == nil || p.File == nil {
		return nil, nil
	}
	o := plan.Options
	o.Actions = nil
	c.plan(p, &o)
	if o.Actions == nil {
		return nil, nil
	}
	rule := o.Actions.Rules[0]
	d.mu.Lock()
	defer d.mu.Unlock()
	planned, notes := plan.Notes(), make(map[uint32]string)
	acts := make(map[uint32][]patch.Act)
	for i := range plan.Functions {
		fn := &plan.Functions[i]
		if fn.ID == 0 || fn.Site == nil {
			continue
		}
		of := rule.Of(fn.Site)
		if len(of) == 0 {
			continue
		}
		old, begun := planned[fn.ID], true
		if now, ok := d.notes[image][fn.ID]; ok {
			old, begun = now, false
		}
		note, err := addCapture(old, rule.Note(fn.Site), begun)
		if err != nil {
			return nil, &session.SpecError{Why: fmt.Sprintf("%s: %v", fn.Name, err)}
		}
		acts[fn.ID], notes[fn.ID] = of, note
	}
	if d.notes[image] == nil {
		d.notes[image] = make(map[uint32]string)
	}
	for id, note := range notes {
		d.notes[image][id] = note
	}
	return acts, nil
}

// addCapture is what readers are told of a function of which something is captured already, or was; begun: since the
// beginning.
func addCapture(old, more string, begun bool) (string, error) {
	if old == "" {
		return more, nil
	}
	var a, b arguments.Capture
	if err := errors.Join(json.Unmarshal([]byte(old), &a), json.Unmarshal([]byte(more), &b)); err != nil {
		return "", err
	}
	add := func(what string, is, want any) error {
		switch {
		case reflect.ValueOf(is).IsNil() || reflect.ValueOf(want).IsNil():
			return nil
		case begun:
			return fmt.Errorf("its %s are recorded since the recording began", what)
		case !reflect.DeepEqual(is, want):
			return fmt.Errorf("its %s were recorded in another way before", what)
		}
		return nil
	}
	if err := errors.Join(add("arguments", a.Params, b.Params), add("results", a.Result, b.Result), add("results", a.Errno, b.Errno)); err != nil {
		return "", err
	}
	if b.Params != nil {
		a.Params = b.Params
	}
	if b.Result != nil {
		a.Result = b.Result
	}
	if b.Errno != nil {
		a.Errno = b.Errno
	}
	return captureText(&a), nil
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
	for _, notes := range []map[uint32]string{planned, d.notes[image]} {
		for id, note := range notes {
			all[id] = note
		}
	}
	return all
}

// planOf finds the plan of an image.
func (r *run) planOf(id trace.ImageID) (*Program, *patch.Plan) {
	if r.main != nil && trace.ImageID(r.main.ImageID) == id {
		return r.p, r.main
	}
	for _, e := range []*executed{r.executed, r.followed} {
		if p, plan := e.planOf(id); plan != nil {
			return p, plan
		}
	}
	return nil, nil
}

// planOf finds the plan of an image; nil: it is none of these.
func (e *executed) planOf(id trace.ImageID) (*Program, *patch.Plan) {
	if e == nil {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range slices.Concat(e.order, e.loaded.all()) {
		if x.plan != nil && trace.ImageID(x.plan.ImageID) == id {
			return x.program, x.plan
		}
	}
	return nil, nil
}
