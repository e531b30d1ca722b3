package patch

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/golang"
)

// Action says what a plan does with a function.
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
	ID     uint32 // 1-based index among the traced functions by address, C's first in Go programs; 0 if not traced
	Action Action

	off   bool // it begins switched off
	quiet bool // it is traced for its actions alone, and its calls are not recorded
	role  role // what it is to the runtime, if it is traced

	displaced uint32 // where the instructions are that its site has displaced, behind layout.displaced
	inThunk   bool   // they are in its thunk, so far behind the beginning of that
	likeThunk bool   // its thunk is described by an entry of thunks with such instructions, in a row with which it is
	back      uint64 // from where they go back to behind the site, if that is out of their reach
	laid      Action // what the layout was made for
	windows   uint16 // how many windows it has
	first     uint32 // index of the first one among those of all functions
}

// Off reports whether a traced function is off until a recorder switches it on ([Options].First).
func (f *Func) Off() bool { return f.off }

// Plan says what to do with one image. It is data: until it is applied, the Action of every function may be edited,
// and so may Options, except Select, First, Without, MinSize and Keep, which only [New] uses. Methods return results for the plan as it is
// when they are called ([Plan.Build]). Everything else is read-only.
//
// All addresses are link-time addresses of the image. A plan is not safe for concurrent use.
type Plan struct {
	Options   Options
	Functions []Func    // of the whole image, by address
	Syscalls  []Syscall // of the whole image, by address, if Options.Syscalls has them
	BuildID   []byte    // build-id of the original image; nil when it has none
	OrigEntry uint64    // entry point of the original image

	// Results of Build.
	ImageID uint64 // identity of (image, set of traced functions)
	Entry   uint64 // new entry point; a shared object keeps its own

	file *elfio.File
	m    machine
	lib  *library // nil: the image is a program

	golang *golang.Image // nil: its functions are not Go's
	l      *layout
	laid   Options // what the layout was made for
	made   bool
}

// flavour is that of the image's code.
func (p *Plan) flavour() flavour {
	if p.golang != nil {
		return goFlavour{cCode{&p.Options}, p.golang}
	}
	return cCode{&p.Options}
}

// Traced returns the number of traced functions, as of the last [Plan.Build].
func (p *Plan) Traced() int { return p.l.traced }

// Total returns the number of functions of the image. Parts of functions are not counted.
func (p *Plan) Total() (n int) {
	for i := range p.Functions {
		if !p.Functions[i].Reason.Part() {
			n++
		}
	}
	return n
}

// AddedEnd returns the address behind what the plan adds to the image, as of the last [Plan.Build].
func (p *Plan) AddedEnd() uint64 { return p.l.end() }

// Changes reports whether any function is traced, or any system call recorded. In memory, a plan can be for what the program
// executes alone ([Options.Bare]).
func (p *Plan) Changes() bool { return p.Traced() > 0 || p.recordsSyscalls() }

// Thunk returns the address of a function's thunk, or 0 if the function is not traced, or is Go's and has none, as of the last
// [Plan.Build].
func (p *Plan) Thunk(fn *Func) uint64 { return p.l.thunkOf(fn) }

// Moved returns where the instructions of a function that its site has displaced are, and how many bytes they take with
// the jump back; 0 if the function is not traced or its site displaces none. As of the last [Plan.Build].
func (p *Plan) Moved(fn *Func) (addr uint64, size int) {
	if !displaces(fn) {
		return 0, 0
	}
	return p.l.displacedTo(fn), p.l.displacer.displacedLen(fn.Site)
}

// New returns a plan, already built, that makes the image trace the sites selected by o. sites is the result of
// [record.Find] for the same image and must not change while the plan is in use. Errors that callers may handle:
// [ErrNoSites], [ErrOverlay], [ErrSanitizer], [ErrTracer], [ErrFunctionOnly].
func New(f *elfio.File, sites []record.Site, o Options) (*Plan, error) {
	m, err := machineFor(f)
	if err != nil {
		return nil, err
	}
	if t := f.Header.Type; t != elf.ET_EXEC && t != elf.ET_DYN {
		return nil, fmt.Errorf("type %v: not a linked image", t)
	}
	lib, err := readLibrary(f)
	if err != nil {
		return nil, err
	}
	p := &Plan{Options: o, BuildID: f.BuildID(), OrigEntry: f.Header.Entry, file: f, m: m, lib: lib, laid: o}
	if p.golang, err = goImage(f, sites); err != nil {
		return nil, err
	}
	p.choose(sites)
	switch {
	case o.Syscalls != nil:
		p.chooseSyscalls(*o.Syscalls)
	case o.Execs != nil && p.golang != nil:
		p.chooseSyscalls(slices.DeleteFunc(slices.Clone(*o.Execs), func(s record.Syscall) bool { return !executes(&s) }))
	}
	if err := p.Build(); err != nil {
		return nil, err
	}
	return p, nil
}

// Build lays out and encodes the plan, unless nothing has been edited since the last Build. New calls it, and so do
// the methods that return an error; it updates ids and everything documented as of the last Build. Errors are those
// of New, and those for an Action that is impossible for a function. After an error nothing is traced.
func (p *Plan) Build() error {
	if p.made && !p.edited() {
		return nil
	}
	p.made = false
	if o := &p.Options; o.NoClock && (o.Tracer != FunctionGraph || o.selective()) {
		return errors.New("without a clock there is the function_graph tracer only, and no roots, functions left out, depth or threshold")
	}
	if err := p.Options.checkFlat(p.file.Header.Machine); err != nil {
		return err
	}
	if err := p.Options.checkActions(); err != nil {
		return err
	}
	l := &layout{p: p}
	p.l = l
	err := p.check()
	if err == nil {
		err = l.build()
	}
	if err != nil {
		p.l = &layout{p: p}
		for i := range p.Functions {
			fn := &p.Functions[i]
			fn.ID, fn.first, fn.windows = 0, 0, 0
		}
		return err
	}
	for i := range p.Functions {
		p.Functions[i].laid = p.Functions[i].Action
	}
	p.laid, p.made = p.Options, true
	return nil
}

// edited reports whether the plan has been edited since it was built.
func (p *Plan) edited() bool {
	return p.Options != p.laid || slices.ContainsFunc(p.Functions, func(f Func) bool { return f.Action != f.laid })
}

// check returns an error for what must not be done with the image.
func (p *Plan) check() error {
	edited := p.Options != p.laid
	if off, n := p.file.Overlay(); n > 0 && p.Options.Target == File && !p.Options.Overlay {
		return fmt.Errorf("%w: %d bytes at offset %#x", ErrOverlay, n, off)
	}
	fl := p.flavour()
	if err := fl.check(p.file); err != nil {
		return err
	}
	kept := p.Options.Keep
	for i := range p.Functions {
		fn := &p.Functions[i]
		if fn.Action == fn.laid && !edited {
			continue // as New has chosen, or as it was
		}
		reason := fl.refuses(fn.Site)
		switch {
		case fn.Action > Nop:
			return fmt.Errorf("%s: %s", fn.Display(), fn.Action)
		case fn.Action != Leave && reason != "":
			return fmt.Errorf("%s: cannot be changed: %s", fn.Display(), reason)
		case fn.Action == Nop && !isCall(fn.Kind):
			return fmt.Errorf("%s: its site is no call that could become a nop", fn.Display())
		case fn.Action == Leave && reason == "" && isCall(fn.Kind):
			kept = true
		}
	}
	if kept && p.hasTracer() {
		return ErrTracer
	}
	return nil
}

// hasTracer reports whether an image has the functions of fentry's linked tracer in
// it, which are those of the kernel's. Both tracers use the same shadow memory.
func (p *Plan) hasTracer() bool {
	need := map[string]bool{"return_to_handler": true, "ftrace_graph_caller": true, "prepare_ftrace_return": true}
	for i := range p.Functions {
		delete(need, p.Functions[i].Name)
	}
	return len(need) == 0
}

// choose decides what happens to every function.
func (p *Plan) choose(sites []record.Site) {
	buildID := hex.EncodeToString(p.BuildID)
	p.Functions = bigslice.Make[Func](0, len(sites))
	selected, hides := p.Options.Select.In(p.Options.Path), p.Options.hidden()
	acts, first := p.Options.Actions.of(p.Options.Path), p.Options.First.In(p.Options.Path)
	// Filters have names demangled, of a compiler 39,000.
	named := make([]struct {
		reason          record.Reason
		selected, hides bool
	}, len(sites))
	parallel.Ranges(len(sites), 256, func(from, to int) {
		for i := from; i < to; i++ {
			s, n := &sites[i], &named[i]
			if n.reason = p.flavour().refuses(s); n.reason == "" {
				n.selected, n.hides = !p.Options.NoFunctions && (selected == nil || selected.MatchSite(s)), hides(s)
			}
		}
	})
	for i := range sites {
		s := &sites[i]
		fn := Func{Site: s}
		reason := named[i].reason
		chosen := named[i].selected && !p.Options.leavesOut(s, buildID)
		wanted := reason == "" && (named[i].hides || p.tells(s, selected))
		off := chosen && !wanted && !first.MatchSite(s)
		switch a := p.Options.Addition; {
		case reason == "" && a == nil && p.flavour().swaps(s):
			fn.Action = Trace
		case a != nil:
			if reason == "" && a.Adds(s) {
				fn.Action, fn.off = Trace, true
			}
		case reason != "":
			fn.leave(reason)
		case off && p.acts(&fn, acts(s)):
		case chosen || wanted:
			fn.Action, fn.off = Trace, off
		case p.acts(&fn, acts(s)):
		case !p.Options.Keep && isCall(s.Kind):
			fn.Action = Nop
		}
		fn.laid = fn.Action
		p.Functions = append(p.Functions, fn)
	}
}

// acts traces a function that is not selected for its actions. It returns false if there are none.
func (p *Plan) acts(fn *Func, acts []Act) bool {
	if len(acts) == 0 || inPlace(fn.Site) {
		return false
	}
	fn.Action, fn.quiet = Trace, quiet(acts)
	return true
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

// plain tells whether functions are traced that no compiler has prepared.
func (p *Plan) plain() bool {
	return slices.ContainsFunc(p.Functions, func(f Func) bool {
		return f.Action == Trace && (f.Kind == record.KindPlain || f.Moves != nil)
	})
}

// foreign is the reason why no function of the image can be traced, if it is that of the image.
func (p *Plan) foreign() record.Reason {
	for i := range p.Functions {
		switch r := p.Functions[i].Reason; r {
		case record.ReasonGoImage, record.ReasonStackWalker, record.ReasonLoader:
			return r
		case "":
			return ""
		}
	}
	return ""
}

// bare reports whether a plan is made without a function to trace: not for images that have no use for the runtime, as
// it cannot follow what they execute.
func (p *Plan) bare() bool {
	why := p.foreign()
	return p.Options.Bare && p.Options.Target == Process && why != record.ReasonGoImage && why != record.ReasonLoader
}

// tally says how often there are which reasons.
func tally(n map[record.Reason]uint64) string {
	var b strings.Builder
	for i, r := range record.ByNumber(n) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", n[r], r)
	}
	return b.String()
}

func (p *Plan) nothingToTrace() error {
	if p.recordsSyscalls() || p.servesLoader() || p.bare() {
		return nil // what is not the program's own needs a runtime
	}
	total, ok, signed, far := p.Total(), 0, 0, 0
	reasons := make(map[record.Reason]uint64)
	for i := range p.Functions {
		switch why := p.Functions[i].Reason; why {
		case "":
			ok++
		case record.ReasonOutOfReach:
			far++
		case record.ReasonSignedReturn:
			signed++
		default:
			reasons[why]++
		}
	}
	option := p.m.facts().option
	switch why := p.foreign(); {
	case far > 0 && p.golang != nil:
		return fmt.Errorf("%w: %d functions are %s", ErrNoSites, far, record.ReasonOutOfReach)
	case far > 0:
		return fmt.Errorf("%w: %d functions are %s; compile with -fpatchable-function-entry=4",
			ErrNoSites, far, record.ReasonOutOfReach)
	case why != "":
		text := why.Text()
		if refused := record.GoRefusal(p.file); why == record.ReasonGoImage && refused != "" {
			text = refused // which says why this one is
		}
		return fmt.Errorf("%w: %s: %s", ErrNoSites, why, text)
	case ok == 0 && signed > 0:
		return fmt.Errorf("%w: tracing %d of %d functions %w; compile with %s",
			ErrNoSites, signed, total, ErrFunctionOnly, option)
	case total == 0:
		return fmt.Errorf("%w: it has none", ErrNoSites)
	case ok == 0 && reasons[record.ReasonNoSite] == 0:
		return fmt.Errorf("%w: none of those that it has can be: %s", ErrNoSites, tally(reasons))
	case ok == 0:
		return fmt.Errorf("%w: %d functions seen, none with a site; compile with %s", ErrNoSites, total, option)
	}
	if n, why := p.LeftRunning(); n > 0 {
		return fmt.Errorf("%w: none of those that are selected can be while it runs: %s", ErrNoSites, why)
	}
	return fmt.Errorf("%w: none of the %d traceable functions is selected", ErrNoSites, ok)
}
