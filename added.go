//go:build linux

package fentry

import (
	"errors"
	"sync"

	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// Functions that were not chosen when a recording began, and are added while it goes on (patch.Addition).
//
// Each time that some are asked for, exactly these are planned, as one image more of the program. Images cost a process some
// pages each, so after a few of them the next has all functions that are left.

// mostAdded is how many images more a program gets that have only what was asked for.
const mostAdded = 8

// added are those of a run. The zero value has none.
type added struct {
	mu  sync.Mutex
	all []*addedPlan
}

// addedPlan is a plan of more functions.
type addedPlan struct {
	of      trace.ImageID
	program *Program
	plan    *patch.Plan // the first one
	options patch.Options
	next    uint64 // the address behind it

	mu  sync.Mutex
	ats map[uint64]*patch.Memory // by place
}

// planOf finds the plan of an image; nil: it is none of these.
func (a *added) planOf(id trace.ImageID) (*Program, *patch.Plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, x := range a.all {
		if trace.ImageID(x.plan.ImageID) == id {
			return x.program, x.plan
		}
	}
	return nil, nil
}

// more plans the functions of an image that patterns choose and that have no plan; nil: there are none.
func (r *run) more(of trace.ImageID, patterns []string) (a *session.Addition, err error) {
	p, plan := r.planOf(of)
	if plan == nil || p.File == nil {
		return nil, nil
	}
	choose, err := record.NewFilter(patterns, nil)
	if err != nil {
		return nil, nil // as who looks each of them up will say
	}
	err = mapped.Guard(func() error {
		a, err = r.added.more(of, p, plan, choose.In(plan.Options.Path))
		return err
	})
	return a, err
}

func (a *added) more(of trace.ImageID, p *Program, plan *patch.Plan, choose *record.Filter) (*session.Addition, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, next := []*patch.Plan{plan}, plan.AddedEnd()+addedApart
	for _, x := range a.all {
		if x.of == of {
			before, next = append(before, x.plan), x.next
		}
	}
	is := choose.MatchSite
	if asked := patch.NewAddition(before, p.Sites, is); asked == nil {
		return nil, nil
	} else if len(before) > mostAdded {
		is = func(*record.Site) bool { return true }
	}
	x := &addedPlan{of: of, program: p, options: plan.Options, ats: make(map[uint64]*patch.Memory)}
	o := &x.options
	o.Addition = patch.NewAddition(before, p.Sites, is)
	o.Target, o.Running, o.Copy, o.Bare, o.First, o.Syscalls = patch.Process, true, true, false, nil, nil
	m, err := x.memory(next)
	if errors.Is(err, patch.ErrNoSites) || errors.Is(err, patch.ErrRunning) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	x.next = m.RXAddr + uint64(len(m.RX)) + addedApart
	a.all = append(a.all, x)
	return &session.Addition{
		Of: of, Image: trace.ImageID(x.plan.ImageID), Sites: x.plan.Traced(), Memory: func(at uint64) (m *patch.Memory, err error) {
			err = mapped.Guard(func() error { m, err = x.memory(at); return err })
			return m, err
		},
	}, nil
}

// addedApart is what is left free behind what was added.
const addedApart = 1 << 16

// memory is the plan for a place.
func (x *addedPlan) memory(at uint64) (*patch.Memory, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.ats[at]; m != nil {
		return m, nil
	}
	o := x.options
	o.At = at
	plan, err := patch.New(x.program.File, x.program.Sites, o)
	if err != nil {
		return nil, err
	}
	m, err := plan.Memory()
	if err != nil {
		return nil, err
	}
	if x.plan == nil {
		x.plan = plan
		x.ats[0] = m
	}
	x.ats[at] = m
	return m, nil
}
