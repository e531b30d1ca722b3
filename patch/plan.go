package patch

import (
	"debug/elf"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/record"
)

// Action is what a plan does with a function.
type Action uint8

const (
	Leave Action = iota // nothing is changed
	Trace               // the site leads to a thunk
	Nop                 // the profiling call becomes a nop
)

var actionNames = [...]string{"leave", "trace", "nop"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Func is one function of the image and what the plan does with it.
type Func struct {
	*record.Site
	ID     uint32 // 1-based index among the traced functions by address; 0 when not traced
	Action Action

	first   uint32 // index of its first window among those of all functions
	windows uint16 // how many it has
}

// Plan is the whole change to one image. All addresses are link-time addresses
// of the image.
type Plan struct {
	Options   Options
	ImageID   uint64 // identity of (image, set of traced functions)
	BuildID   []byte // build-id of the image as it was; nil when it has none
	Functions []Func
	Entry     uint64 // new entry point
	OrigEntry uint64

	file    *elfio.File
	m       machine
	flavour flavour
	l       *layout
}

// Traced is the number of functions the plan traces.
func (p *Plan) Traced() int { return p.l.traced }

// Thunk is the address of a function's thunk, 0 for one that is not traced.
func (p *Plan) Thunk(fn *Func) uint64 {
	if fn.ID == 0 {
		return 0
	}
	return p.l.thunk(fn.ID)
}

// New plans the change that makes the image trace the sites selected by o.
// sites is the result of [record.Find] for the same image; it must not change
// while the plan is in use. Errors a caller may
// decide by: [ErrNoSites], [ErrOverlay], [ErrSanitizer], [ErrTracer],
// [ErrFunctionOnly].
func New(f *elfio.File, sites []record.Site, o Options) (*Plan, error) {
	m, err := machineFor(f)
	if err != nil {
		return nil, err
	}
	if t := f.Header.Type; t != elf.ET_EXEC && t != elf.ET_DYN {
		return nil, fmt.Errorf("type %v: not a linked image", t)
	}
	if off, n := f.Overlay(); n > 0 && o.Target == File && !o.Overlay {
		return nil, fmt.Errorf("%w: %d bytes at offset %#x", ErrOverlay, n, off)
	}
	p := &Plan{Options: o, BuildID: f.BuildID(), OrigEntry: f.Header.Entry, file: f, m: m}
	p.flavour = cCode{&p.Options}
	if err := p.flavour.check(f); err != nil {
		return nil, err
	}
	if o.Keep && hasTracer(sites) {
		return nil, ErrTracer
	}
	p.choose(sites)
	if err := p.build(); err != nil {
		return nil, err
	}
	return p, nil
}

// hasTracer reports whether an image has the functions of fentry's linked tracer in
// it, which are those of the kernel's. Both tracers use the same shadow memory.
func hasTracer(sites []record.Site) bool {
	need := map[string]bool{"return_to_handler": true, "ftrace_graph_caller": true, "prepare_ftrace_return": true}
	for i := range sites {
		delete(need, sites[i].Name)
	}
	return len(need) == 0
}

// choose decides what happens to every function.
func (p *Plan) choose(sites []record.Site) {
	p.Functions = bigslice.Make[Func](0, len(sites))
	for i := range sites {
		s := &sites[i]
		fn := Func{Site: s}
		switch reason := p.flavour.refuses(s); {
		case reason != "":
			fn.leave(reason)
		case p.Options.Select == nil || p.Options.Select.MatchSite(s):
			fn.Action = Trace
		case !p.Options.Keep && isCall(s.Kind):
			fn.Action = Nop
		}
		p.Functions = append(p.Functions, fn)
	}
}

// leave leaves a function alone that was to be traced.
func (f *Func) leave(r record.Reason) {
	if f.Reason != r {
		s := *f.Site
		s.Reason = r
		f.Site = &s
	}
	f.Action = Leave
}

// isCall tells the kinds of site that cost time when they are left alone.
func isCall(k record.Kind) bool {
	return k == record.KindFentryCall || k == record.KindMcountCall
}

func (p *Plan) nothingToTrace() error {
	total, ok, signed, far := len(p.Functions), 0, 0, 0
	for i := range p.Functions {
		switch p.Functions[i].Reason {
		case "":
			ok++
		case record.ReasonOutOfReach:
			far++
		case record.ReasonSignedReturn:
			signed++
		}
	}
	option := p.m.facts().option
	switch {
	case far > 0:
		return fmt.Errorf("%w: %d functions are %s; compile with -fpatchable-function-entry=4", ErrNoSites, far, record.ReasonOutOfReach)
	case ok == 0 && signed > 0:
		return fmt.Errorf("%w: %d of %d functions can be traced %w; compile with %s", ErrNoSites, signed, total, ErrFunctionOnly, option)
	case ok == 0:
		return fmt.Errorf("%w: %d functions seen, none with a site; compile with %s", ErrNoSites, total, option)
	}
	return fmt.Errorf("%w: none of the %d traceable functions is selected", ErrNoSites, ok)
}
