package patch

import (
	"debug/elf"
	"fmt"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/record"
)

// Tracer says what the runtime records, in ftrace's words.
type Tracer uint8

const (
	FunctionGraph Tracer = iota // entries and exits
	Function                    // entries only
	Profile                     // counts and times per function, no stream of events
)

var tracerNames = [...]string{"function_graph", "function", "profile"}

func (t Tracer) String() string {
	if int(t) < len(tracerNames) {
		return tracerNames[t]
	}
	return fmt.Sprintf("Tracer(%d)", uint8(t))
}

// ParseTracer is the inverse of [Tracer.String].
func ParseTracer(s string) (Tracer, error) {
	for i, n := range tracerNames {
		if s == n {
			return Tracer(i), nil
		}
	}
	return 0, fmt.Errorf("unknown tracer %q: use function_graph, function or profile", s)
}

// Target is where a plan will be applied; it decides the addresses of what is
// added.
type Target uint8

const (
	// File: a new ELF file. The added segment follows everything loaded.
	File Target = iota
	// Process: a process stopped at exec. The added memory is placed
	// behind the image, out of the way of the heap.
	Process
)

// Options of [New]. The zero value plans a file that traces every traceable
// function with the function_graph tracer.
type Options struct {
	Tracer Tracer
	Target Target

	// Select says whether a function is traced; nil: all of them.
	Select *record.Filter
	// Roots restricts recording to what happens inside these functions; nil: no restriction.
	Roots *record.Filter
	// Depth is the number of nested traced calls recorded; 0: unlimited.
	Depth uint32
	// Threshold: calls shorter than this leave no events; 0: all do.
	Threshold time.Duration

	// Keep leaves the profiling calls of functions that are not traced as they
	// are. By default they become nops: the program pays nothing for them. It is
	// refused where they call a tracer that keeps return addresses itself.
	Keep bool

	// Overlay plans a file although data follow what its headers describe. What is
	// added goes behind them, so a program that looks for them from its end (a
	// self-extracting archive) will not find them.
	Overlay bool

	Session string // path of the recorder's pool; "" in files
	Dir     string // trace directory of a program that runs alone; "": fentry.data
	Policy  uint32 // what to do when buffers are full: 0 wait, 1 drop, 2 overwrite
	Path    string // path of the image, for people; recorded in the trace
}

// Action is what a plan does with a function.
type Action uint8

const (
	Leave Action = iota // nothing is changed
	Trace               // the site leads to a thunk
	Nop                 // the profiling call becomes a nop
)

var actionNames = [...]string{"leave", "trace", "nop"}

func (a Action) String() string { return actionNames[a] }

// Func is one function of the image and what the plan does with it.
type Func struct {
	*record.Site
	Thunk  uint64 // address of its thunk; 0 when not traced
	ID     uint32 // 1-based index among the traced functions by address; 0 when not traced
	Action Action

	edit uint32 // index of its edit among those of all sites
	at   int    // where the bytes of its edit are among those of all sites
}

// Edit replaces len(Old) bytes at a loaded address.
type Edit struct {
	Addr   uint64
	Old    []byte
	New    []byte
	Func   string // raw name of the function, "" when unknown
	Reason string // "trace", "nop"; "unwind": an unwind table entry; "veneer": nops between functions
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

	RX     []byte // contents of the added read-execute memory
	RXAddr uint64
	RW     uint64 // added zeroed read-write memory
	RWSize uint64

	Symbols  []elfio.AddedSymbol // besides those of thunks
	Sections []elfio.AddedSection

	file       *elfio.File
	m          machine
	layout     elfio.Layout
	tls        uint64     // how far the runtime's thread-local memory is behind the thread pointer
	ptTLS      elfio.Prog // for a process: PT_TLS with that memory; zero when there is none
	traced     int        // how many functions are traced
	edited     int        // how many functions are edited
	editBytes  int        // how many bytes of theirs
	nameBytes  int        // of the names of all thunks, at most
	runs       []arch.ThunkRun
	armed      uint64 // of the runtime's word that arms all thunks
	routines   [arch.ThunkMcountFunc + 1]enterExit
	before     []byte          // of the sites, one behind the other, as they were
	after      []byte          // and as they will be
	sites      []elfio.RawEdit // for a file: the edits of sites
	hidden     []Edit          // edits of tables, sorted by address
	raw        []elfio.RawEdit // edits that are not code: dynamic entries
	moved      []elfio.MovedSection
	relWord    uint64 // offset in RW of the word the runtime's own relocation fills
	ehFrameHdr [2]uint64
	phdrAddr   uint64
	phdrs      []byte
	syms       map[string]uint64
	defined    []elfio.LinkedSymbol
}

// Traced is the number of functions the plan traces.
func (p *Plan) Traced() int { return p.traced }

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
	if f.Header.Entry == 0 {
		return nil, fmt.Errorf("no entry point: only executables can be patched")
	}
	if off, n := f.Overlay(); n > 0 && o.Target == File && !o.Overlay {
		return nil, fmt.Errorf("%w: %d bytes at offset %#x", ErrOverlay, n, off)
	}
	if o.Tracer != Function {
		if err := checkSanitizer(f); err != nil {
			return nil, err
		}
	}
	if o.Keep && hasTracer(sites) {
		return nil, ErrTracer
	}
	p := &Plan{Options: o, BuildID: f.BuildID(), OrigEntry: f.Header.Entry, file: f, m: m}
	p.choose(sites)
	if p.Traced() == 0 {
		return nil, p.nothingToTrace()
	}
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

// choose decides what happens to every function and numbers the traced ones.
func (p *Plan) choose(sites []record.Site) {
	p.Functions = bigslice.Make[Func](0, len(sites))
	for i := range sites {
		s := &sites[i]
		if s.Ret == record.RetSigned && s.Reason == "" && p.Options.Tracer != Function {
			refused := *s
			refused.Reason = record.ReasonSignedReturn
			s = &refused
		}
		fn := Func{Site: s}
		switch {
		case s.Reason != "":
		case p.Options.Select == nil || p.Options.Select.MatchSite(s):
			fn.Action = Trace
		case !p.Options.Keep && isCall(s.Kind):
			fn.Action = Nop
		}
		p.Functions = append(p.Functions, fn)
	}
	p.number()
}

// number gives the traced functions their ids, and what is edited its place.
func (p *Plan) number() {
	p.traced, p.edited, p.editBytes, p.nameBytes = 0, 0, 0, 0
	for i := range p.Functions {
		fn := &p.Functions[i]
		fn.ID = 0
		if fn.Action == Trace {
			p.traced++
			fn.ID = uint32(p.traced)
			p.nameBytes += len(thunkPrefix) + max(len(fn.Name), 2*8) + 1
		}
		if fn.Action != Leave {
			fn.edit, fn.at = uint32(p.edited), p.editBytes
			p.edited++
			p.editBytes += fn.Len
		}
	}
}

// leave leaves a function alone that was to be traced. The ids have to be given
// anew then.
func (f *Func) leave(r record.Reason) {
	s := *f.Site
	s.Reason = r
	f.Site, f.Action = &s, Leave
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
	switch {
	case far > 0:
		return fmt.Errorf("%w: %d functions are %s; compile with -fpatchable-function-entry=4", ErrNoSites, far, record.ReasonOutOfReach)
	case ok == 0 && signed > 0:
		return fmt.Errorf("%w: %d of %d functions can be traced %w; compile with %s", ErrNoSites, signed, total, ErrFunctionOnly, p.m.option())
	case ok == 0:
		return fmt.Errorf("%w: %d functions seen, none with a site; compile with %s", ErrNoSites, total, p.m.option())
	}
	return fmt.Errorf("%w: none of the %d traceable functions is selected", ErrNoSites, ok)
}

// thunkKind says which thunk serves a site.
func (p *Plan) thunkKind(s *record.Site) arch.ThunkKind {
	behind := s.Ret == record.RetFP || s.Ret == record.RetSigned
	switch {
	case behind && p.Options.Tracer == Function:
		return arch.ThunkMcountFunc
	case behind:
		return arch.ThunkMcount
	case p.Options.Tracer == Function:
		return arch.ThunkFunc
	}
	return arch.ThunkGraph
}
