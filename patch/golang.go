package patch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/stub"
)

// Go's functions.
//
// They have no thunks: an event is recorded in place, at the entry and at each end (arch/amd64, goevent.go), and
// instructions that stood where jumps are now follow. So a function's windows are many, and what they lead to has a length
// of its own. It is all code of one more module of the program's runtime (gomodule.go).

// goFlavour is the flavour of code that Go's toolchain has made: stacks move, so return addresses stay what they are, and
// the program's runtime knows all of its code. C functions of the same image, which Go's call on other stacks, have theirs:
// no Go function has one of these for its caller.
type goFlavour struct {
	cCode
	im *golang.Image
}

// goImage reads the tables of a Go program that has sites; nil: it is none.
func goImage(f *elfio.File, sites []record.Site) (*golang.Image, error) {
	if !slices.ContainsFunc(sites, func(s record.Site) bool { return s.Kind == record.KindGo }) {
		return nil, nil
	}
	return golang.Read(f)
}

// ErrGoTracer is returned for what cannot be done with functions of a Go program.
var ErrGoTracer = errors.New("functions of Go programs are traced by function_graph, with a clock, and without a depth, " +
	"a threshold, roots, functions left out with all inside them, arguments, results, stacks or triggers")

func (g goFlavour) check(*elfio.File) error {
	if g.o.Tracer != FunctionGraph || g.o.selective() || g.o.NoClock || g.o.Flat || g.o.Actions != nil {
		return ErrGoTracer
	}
	return nil
}

// tells reports whether a function is one of those of Go's runtime that tell what its goroutines and its collector do, which
// are traced with whatever else is, unless a pattern leaves them out.
func (p *Plan) tells(s *record.Site, selected *record.Filter) bool {
	return s.Kind == record.KindGo && golang.Tells(s.Name) && !p.Options.NoFunctions && !selected.Excludes(s.Name)
}

// Module is the path of a Go program's main module; "": it has none, or Go has not linked it.
func (p *Plan) Module() string {
	if p.golang == nil {
		return ""
	}
	return p.golang.Main
}

// GoRuntime is the label of the version of Go that has linked the program ([golang.Version.Label]); "": none has.
func (p *Plan) GoRuntime() string {
	if p.golang == nil {
		return ""
	}
	return p.golang.Version.Label()
}

// Silent reports whether calls of a function are not recorded, but what they do.
func (fn *Func) Silent() bool { return fn.Moves != nil && golang.Silent(fn.Name) }

// goID is the id of the function with a name, 0: it is not traced.
func (p *Plan) goID(name string) uint32 {
	for i := range p.Functions {
		if fn := &p.Functions[i]; fn.Name == name {
			return fn.ID
		}
	}
	return 0
}

// goNotes are what is captured of functions of a Go program, by id.
func (p *Plan) goNotes() map[uint32]string {
	if p.golang == nil {
		return nil
	}
	notes := map[uint32]string{}
	if id := p.goID(golang.Park); id != 0 && p.golang.Version.Module() {
		notes[id] = p.golang.Version.ParkNote()
	}
	if id := p.goID(golang.Ready); id != 0 {
		notes[id] = golang.ReadyNote()
	}
	return notes
}

func (g goFlavour) refuses(s *record.Site) record.Reason {
	if isGo(s) {
		return s.Reason
	}
	return g.cCode.refuses(s)
}

func (goFlavour) hasThunk(s *record.Site) bool { return !isGo(s) }

// isGo reports whether a site is that of a function of Go's.
func isGo(s *record.Site) bool { return s.Kind == record.KindGo }

// place puts what C's functions have first, and then the copies of system calls in front of the code of Go's, because these
// are one module.
func (g goFlavour) place(l *layout) error {
	if l.thunks > 0 {
		if err := l.p.m.place(l); err != nil {
			return err
		}
	}
	l.goVeneers = map[string]uint64{}
	if err := l.addSyscalls(); err != nil {
		return err
	}
	return l.placeGo(g.im)
}

// placeGo lays out the code of all traced functions, and the module that it is.
func (l *layout) placeGo(im *golang.Image) error {
	m, ok := l.p.m.(goMachine)
	if !ok {
		return internalf("a Go program of a machine whose programs are not traced")
	}
	codes, size, err := l.layGo(m, im)
	if err != nil {
		return err
	}
	if l.leaveGo(m, codes, size) {
		l.number() // without those that have been left alone
		if codes, size, err = l.layGo(m, im); err != nil {
			return err
		}
	}
	l.movedWindows = map[int][]movedWindow{}
	for _, c := range codes {
		code, err := im.Code(c.f)
		if err != nil {
			return err
		}
		if l.movedWindows[c.fn], err = m.movedWindows(&c.movedCode, code); err != nil {
			return err
		}
	}
	calls, err := l.goSyscalls(m, im)
	if err != nil || len(codes)+len(calls) == 0 {
		return err
	}
	if l.goCodes = codes; len(codes) > 0 {
		l.add(piece{
			name: ".fentry.moved", code: true, size: size, align: goAlign, owner: nobody,
			write: func(dst []byte) ([]byte, error) { return l.appendGo(dst, im) },
		})
		l.goVeneers[goSlow] = m.placeVeneer(l, goSlow)
		if err := l.placePreempted(im); err != nil {
			return err
		}
		if l.p.Options.Target == File {
			if err := l.addOriginal(); err != nil {
				return err
			}
		}
	}
	if im.Version.Module() {
		if err := l.placeModule(im, append(calls, codes...)); err != nil {
			return err
		}
	}
	m.placeStart(l)
	return nil
}

// layGo lays out the code of all traced functions, where it is to be.
func (l *layout) layGo(m goMachine, im *golang.Image) (codes []*goCode, size uint64, err error) {
	base := l.align(goAlign)
	for i := range l.p.Functions {
		fn := &l.p.Functions[i]
		if fn.ID == 0 || fn.Moves == nil {
			continue
		}
		f := im.Func(fn.Func)
		if f == nil {
			return nil, 0, internalf("%s at %#x: not in the table of functions", fn.Display(), fn.Func)
		}
		code, err := im.Code(f)
		if err != nil {
			return nil, 0, err
		}
		c, err := layGo(m, code, f, fn.Moves, fn.ID)
		if err == nil && im.Version.Module() {
			err = c.addPhantoms(im)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s at %#x: %w", fn.Display(), fn.Func, err)
		}
		c.fn, c.at = i, base+size
		size += uint64(c.phantom(c.phantoms.n()))
		codes = append(codes, c)
	}
	return codes, size, nil
}

// leaveGo leaves functions alone that jumps cannot reach, wherever their code is in what is added, or what those jump to, and
// such as are too large for their own branches. It reports whether there are any.
func (l *layout) leaveGo(m goMachine, codes []*goCode, size uint64) (left bool) {
	base := l.align(goAlign)
	for _, c := range codes {
		if c.size > m.goMost() || !c.reached(base, base+size) {
			l.p.Functions[c.fn].leave(record.ReasonOutOfReach)
			left = true
		}
	}
	return left
}

// goSyscalls are the copies of system calls as the program's runtime is to see them.
func (l *layout) goSyscalls(m goMachine, im *golang.Image) (codes []*goCode, err error) {
	for s, b := range l.syscallCopies(&err) {
		if !s.Go {
			continue
		}
		code := b[:s.Move.Code]
		c := &goCode{movedCode: movedCode{m: m, at: l.syscallAt(s), size: m.syscallLen(s, code)}, g: m, f: im.Func(s.Func), parts: m.syscallParts(s, code)}
		if c.parts == nil {
			return nil, internalf("system call at %#x: its instructions are not where they were", s.Addr)
		}
		codes = append(codes, c)
	}
	for _, c := range codes {
		if err == nil && im.Version.Module() {
			err = c.addPhantoms(im)
		}
	}
	return codes, err
}

// addOriginal adds what the code was, which a patched program has again while nothing is recorded: windows cost jumps.
func (l *layout) addOriginal() error {
	g := &stub.GoOriginal{}
	var all []movedWindow
	for _, windows := range l.movedWindows {
		all = append(all, windows...)
	}
	slices.SortFunc(all, func(a, b movedWindow) int { return cmp.Compare(a.addr, b.addr) })
	for _, w := range all {
		old, err := l.p.file.Bytes(w.addr, len(w.new))
		if err != nil {
			return err
		}
		g.Addrs, g.Bytes = append(g.Addrs, w.addr), append(g.Bytes, old)
	}
	l.goOriginal = l.add(piece{
		name: ".fentry.original", size: uint64(len(g.AppendTo(nil, 0))), align: 8, owner: nobody,
		write: func(dst []byte) ([]byte, error) { return g.AppendTo(dst, l.runtime.image), nil },
	})
	return nil
}

// placeModule adds the module that the codes are, and makes it the second of the program's runtime: by the word for it in
// the first one or, if both are relocated, by the tracer's runtime (stub/src/gomodule.c).
func (l *layout) placeModule(im *golang.Image, codes []*goCode) error {
	at := l.align(goAlign)
	m := &goModule{im: im, codes: codes, run: at}
	if l.goModule != 0 {
		m.run = l.goModule
	}
	table, err := m.encode(at)
	if err != nil {
		return err
	}
	l.add(piece{name: ".fentry.gomodule", size: uint64(len(table)), align: goAlign, owner: nobody, ready: table})
	next := im.ModuleData + uint64(im.Version.Next)
	if l.goModule == 0 {
		l.tables = append(l.tables, arch.Edit{
			Addr: next, Old: make([]byte, 8), New: le.AppendUint64(nil, at), Func: "runtime.firstmoduledata", Reason: "module",
		})
		return nil
	}
	l.goLink = l.add(piece{
		name: ".fentry.golink", size: stub.GoModuleSize(len(m.words)), align: 8, owner: nobody,
		write: func(dst []byte) ([]byte, error) {
			to := func(addr uint64) int64 { return int64(addr - l.runtime.image) }
			g := stub.GoModule{
				From: to(at), To: to(m.run), Next: to(next), Size: uint32(goModuleSize(im)), Words: m.words,
			}
			b, err := g.MarshalBinary()
			return append(dst, b...), err
		},
	})
	return nil
}

// goAlign is the alignment of what is added to a Go program.
const goAlign = 64

// goSlow is the runtime's routine that events come to which are not recorded in place.
const goSlow = "fentry_go_slow"

// goRoutine is where code of the module goes that goes to one of the runtime's routines.
func (l *layout) goRoutine(name string) (uint64, error) {
	if at := l.goVeneers[name]; at != 0 {
		return at, nil
	}
	return l.symbol(name)
}

// appendGo appends all functions' code.
func (l *layout) appendGo(dst []byte, im *golang.Image) ([]byte, error) {
	r := goRoutines{switches: l.switches, goID: im.Version.GoID, thread: im.ThreadWord()}
	if im.ThreadWord() == 0 {
		r.tls = l.tls
	}
	var err error
	if r.slow, err = l.goRoutine(goSlow); err != nil {
		return nil, err
	}
	if r.idBase, err = l.symbol("fentry_id_base"); err != nil {
		return nil, err
	}
	for _, c := range l.goCodes {
		code, err := im.Code(c.f)
		if err != nil {
			return nil, err
		}
		if dst, err = c.appendGo(dst, code, &r); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// movedNew is what a window of a function that is recorded in place is rewritten with.
func (l *layout) movedNew(i int, w *window) []byte {
	for _, g := range l.movedWindows[i] {
		if g.addr == w.addr {
			return bytes.Clone(g.new)
		}
	}
	return nil
}
