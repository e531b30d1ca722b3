//go:build linux

package fentry

import (
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/internal/machine"
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
	mu       sync.Mutex
	all      []*addedPlan
	programs map[*Program]*Program // with all functions, of those that were looked at for system calls alone
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
	choose, err := record.NewFilter(patterns, nil)
	if err != nil {
		return nil, nil // as who looks each of them up will say
	}
	err = mapped.Guard(func() error {
		p, plan := r.planOf(of)
		if plan == nil {
			if p, plan, err = r.libraries.planOf(of); err != nil {
				return err
			}
		}
		if plan == nil || p.File == nil {
			return nil
		}
		if plan.Options.NoFunctions { // nobody has looked for them
			if p, err = r.added.allOf(p, r.o.find()); err != nil {
				return err
			}
		}
		a, err = r.added.beside(of, p, plan, choose.In(plan.Options.Path))
		return err
	})
	return a, err
}

// allOf is a program with all its functions, of one that was looked at for its system calls alone. It lives as long as that.
func (a *added) allOf(p *Program, find record.Options) (*Program, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.programs[p]
	if all == nil {
		all = &Program{Path: p.Path, symbols: p.symbols, mapped: p.mapped}
		find.Syscalls, find.LibraryCalls, find.Named, find.JumpsAway = false, false, nil, true
		if err := all.find(find); err != nil {
			return nil, err
		}
		if a.programs == nil {
			a.programs = make(map[*Program]*Program)
		}
		a.programs[p] = all
	}
	return all, nil
}

// moreOf does so in a library without a plan, if it is named in front of a pattern.
func (r *run) moreOf(path string, f *os.File, at uint64, patterns []string) (a *session.Addition, err error) {
	patterns = slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return !record.OfImage(p, path) })
	choose, err := record.NewFilter(patterns, nil)
	if host, ok := machine.Host(); !ok || len(patterns) == 0 || err != nil || !isLibrary(f, host.ELF) {
		return nil, nil
	}
	m, err := mapped.MapFD(int(f.Fd()), path)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path, symbols: r.o.Symbols, mapped: m}
	p.symbols.Path = ""
	err = mapped.Guard(func() error {
		find := r.o.find()
		find.Syscalls, find.LibraryCalls, find.Named, find.JumpsAway = false, false, choose, true
		if err := p.find(find); err != nil || p.Patched || p.Untraced != "" {
			return err
		}
		o := r.o.Plan
		o.Path, o.At = path, at
		a, err = r.added.add(&addedPlan{program: p, options: o}, nil, choose.In(path).MatchSite)
		return err
	})
	if a == nil {
		p.Close()
	}
	return a, err
}

// beside plans functions beside a plan.
func (a *added) beside(of trace.ImageID, p *Program, plan *patch.Plan, choose *record.Filter) (*session.Addition, error) {
	x := &addedPlan{of: of, program: p, options: plan.Options}
	before, next := []*patch.Plan{plan}, plan.AddedEnd()+addedApart
	a.mu.Lock()
	for _, o := range a.all {
		if o.of == of {
			before, next = append(before, o.plan), o.next
		}
	}
	a.mu.Unlock()
	is := choose.MatchSite
	if patch.NewAddition(before, p.Sites, is) == nil {
		return nil, nil
	}
	if len(before) > mostAdded {
		is = func(*record.Site) bool { return true }
	}
	x.options.At = next
	return a.add(x, before, is)
}

// add plans functions that others do not have.
func (a *added) add(x *addedPlan, before []*patch.Plan, is func(*record.Site) bool) (*session.Addition, error) {
	o := &x.options
	if o.Addition = patch.NewAddition(before, x.program.Sites, is); o.Addition == nil {
		return nil, nil
	}
	if !o.Running {
		o.Unwinders = patch.UnwindersBlind // of one that was started nobody has asked
	}
	o.Target, o.Running, o.Copy, o.Bare, o.NoFunctions = patch.Process, true, true, false, false
	o.First, o.Syscalls = nil, nil
	m, err := x.memory(o.At)
	if errors.Is(err, patch.ErrNoSites) || errors.Is(err, patch.ErrRunning) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	x.next = m.RXAddr + uint64(len(m.RX)) + addedApart
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, x)
	return &session.Addition{
		Of: x.of, Image: trace.ImageID(x.plan.ImageID), Sites: x.plan.Traced(), Memory: func(at uint64) (m *patch.Memory, err error) {
			err = mapped.Guard(func() error { m, err = x.memory(at); return err })
			return m, err
		},
	}, nil
}

// close gives back the libraries.
func (a *added) close() {
	for _, x := range a.all {
		if x.of == 0 {
			x.program.Close()
		}
	}
	for _, p := range a.programs {
		if p.table != nil {
			p.table.Close()
		}
	}
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
		x.ats = map[uint64]*patch.Memory{0: m}
	}
	x.ats[at] = m
	return m, nil
}
