package trace

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/internal/safetext"
)

// Options are the options of [OpenWith]. The zero value is that of Open.
type Options struct {
	// Resolve returns the functions of an image that has no .sym file in the directory, as in a trace that a patched
	// program wrote alone. nil: they are read from the program's file, if the trace names it and it is still the one
	// that was traced. To open no file that a trace names, set a function that always fails.
	Resolve func(Image) (SymTable, error)
	// Name turns a raw symbol name into one for people, for instance by demangling it. nil: names stay raw.
	Name func(raw string) string
	// Images has names end in that of the program or library in brackets, "malloc [libc.so.6]", as the kernel's ftrace
	// has names of functions of modules.
	Images bool
	// CounterHz returns the counter's frequency for a trace that does not state it and is too short to measure it.
	// nil: 1 tick is then shown as 1 ns.
	CounterHz func() float64
	// HeaderClock takes frequency and start from the header of the events file alone, whatever the rest of the trace says
	// of the clock: so times in several traces of one session compare exactly.
	HeaderClock bool
	// Threads makes the threads of Go programs tasks, and no goroutines: each goroutine is then a stack of the thread that
	// it runs on.
	Threads bool
}

// A Trace is an open trace directory. It is safe for concurrent use.
type Trace struct {
	Dir string
	// Info is what the recorder has written, nil for a trace that a program wrote alone or whose recorder was killed
	// early.
	Info *Info
	// Ending says whether the recording ended properly; with EndMissing and EndPending the trace is incomplete.
	Ending Ending
	Header Header
	Clock  Clock
	// Images are the program images of the trace, in the order they appear.
	Images []Image
	// Mappings are the images that processes had loaded, by process and time, as far as the trace tells.
	Mappings []Mapping
	// SwitchedOff are the functions that the recorder has switched off, because recording them cost too much, by time.
	SwitchedOff []SwitchedOff
	// Tasks are the threads, by their first event. One whose process was
	// replaced by exec, or whose id was used again, is another Task.
	Tasks []*Task
	// Processes are the processes of these tasks, by their first event.
	Processes []*Process
	// Chunks and Bytes count what events holds, headers of chunks included, and as if no chunk was compressed.
	Chunks int
	Bytes  int64
	// Compressed is how many of the chunks are compressed, Stored how many bytes all of them take in the file.
	Compressed int
	Stored     int64
	// Unknown is the number of chunks of unknown kinds.
	Unknown int
	// Lost is the number of events known to be lost, including those of tasks that never got a chunk.
	Lost uint64
	// Problems are the problems found while opening: a truncated tail, a damaged chunk, an image without symbols.
	// What could be read is available nevertheless.
	Problems []error
	// Unlisted is the number of problems beyond those that are listed.
	Unlisted int

	file     io.ReaderAt   // events, a plainFile
	list     io.Reader     // chunks, while the trace is opened; nil: there is none
	dir      *safefile.Dir // while the trace is opened; nil: it is not read from a directory
	size     int64
	identity format.Identity
	close    func() error
	syms     []SymTable // by image
	lines    []imageLines
	codes    []code

	frameNames frameNames
	captures   bool     // functions have captures
	flat       []bool   // by image: its tracer records entries only
	said       []saidAt // where chunks of several goroutines say what stacks are, by place
	ranges     idRanges
	off        map[FuncID]int64 // when functions were switched off
	blocks     *blockIndex      // the file index; nil: there is none
	part       *blockIndex      // one that is not whole
	namesOnce  sync.Once
	taskNames  map[int]string // by thread id

	cache      []nameCache // names, by image
	name       func(string) string
	nameImages bool

	forked  int  // tasks that have a parent
	threads bool // goroutines are no tasks
}

// A Task is a thread of the trace or, of a Go program, a goroutine.
type Task struct {
	Index     int // position in Trace.Tasks
	PID, TID  int
	Goroutine uint64 // number of the goroutine, which TID is, too; 0: the task is a thread
	Process   *Process
	Comm      string // the latest name
	// Key tells tasks with the same thread id apart.
	Key uint64
	// Parent is the task this one was forked from, nil if it was not forked or the parent is unknown.
	Parent               *Task
	ParentPID, ParentTID int
	// Start is the time of the first event in ns since the trace's start.
	Start int64
	// Stack is the number of the stack the task begins on.
	Stack uint64
	// Image is the position in Trace.Images of the task's first image.
	Image int
	// Lost is the number of events the task reports lost.
	Lost uint64
	// Gaps is the number of places where whole chunks are missing.
	Gaps int

	begin    uint64 // counter of the first event
	number   uint32 // of the first chunk there is
	chunks   []chunkRef
	unsealed []chunkRef // of chunks, those that may still grow
	profiles []chunkRef
	counts   []chunkRef
	sched    []schedRef // when the thread was off a processor
	children []*Task    // forked ones, by Start
	made     *made      // how the goroutine was made, nil: it is not known
}

// String returns "comm-tid"; of a goroutine "comm-gN".
func (k *Task) String() string { return k.Comm + "-" + k.Number() }

// Number returns the thread's id, or g and the goroutine's number.
func (k *Task) Number() string {
	if k.Goroutine != 0 {
		return fmt.Sprintf("g%d", k.Goroutine)
	}
	return strconv.Itoa(k.TID)
}

// Open opens the trace in directory dir.
func Open(dir string) (*Trace, error) { return OpenWith(dir, Options{}) }

// OpenWith opens the trace in directory dir. It reads info.json, the symbols and the headers of the chunks, but no
// events. An error means that nothing can be read; lesser damage is reported in Trace.Problems.
func OpenWith(dir string, o Options) (*Trace, error) {
	d, err := safefile.OpenDir(dir)
	if err != nil {
		if missing(err) {
			return nil, fmt.Errorf("%s: no such trace: %w", dir, errors.Unwrap(err))
		}
		return nil, err
	}
	defer d.Close()
	t := &Trace{Dir: dir, dir: d, name: o.Name, nameImages: o.Images}
	info, err := readInfo(d)
	switch {
	case err == nil:
		t.Info = info
	case !missing(err):
		t.problem(err)
	}
	f, err := d.Open(EventsFile)
	if err != nil {
		if missing(err) {
			return nil, fmt.Errorf("%s: no trace: it has no file %q", dir, EventsFile)
		}
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	default:
		t.close = f.Close
		if list := t.openChunks(d); list != nil {
			defer list.Close()
			t.list = list
		}
		err = t.load(f, st.Size(), o)
		t.list, t.dir = nil, nil
		t.Ending = t.ending(f)
		if err == nil && t.Ending != EndPending && !t.hasGoroutines() {
			t.openIndex(d)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return t, nil
}

// load reads what is kept in memory of events, size bytes behind r.
func (t *Trace) load(r io.ReaderAt, size int64, o Options) error {
	t.file, t.size, t.threads = &plainFile{file: r}, size, o.Threads
	ix, err := t.readIndex()
	if err != nil {
		return err
	}
	t.setClock(ix, o)
	if t.Info != nil {
		t.Lost = max(t.Lost, t.Info.Lost) // a recorder knows of losses that no task does
	}
	t.loadSymbols(o)
	t.flat = make([]bool, len(t.Images))
	for i := range t.Images {
		mode := t.Images[i].Mode
		if mode == "" && t.Info != nil {
			mode = t.Info.Tracer
		}
		t.flat[i] = mode == "function"
	}
	t.setMappings()
	t.setSwitchedOff(ix.off)
	for _, k := range t.Tasks {
		k.Start = t.Clock.Time(k.begin)
	}
	t.setProcesses(&ix.programs)
	return nil
}

func (t *Trace) setClock(ix *index, o Options) {
	pairs := &ix.pairs
	stated := []float64{float64(t.Header.CounterHz)}
	sources := []string{"header"}
	if t.Info != nil {
		for _, p := range t.Info.Clock.Pairs {
			pairs.add(p)
		}
		stated = append(stated, float64(t.Info.Clock.Hz))
		sources = append(sources, "info")
	}
	ps := pairs.all()
	if o.HeaderClock {
		ps = []ClockPair{{Counter: t.Header.Counter, Monotonic: t.Header.Monotonic}}
	}
	t.Clock = newClock(ps, stated, sources, o.CounterHz)
	t.Clock.Base = t.Header.Counter
	if ix.first != 0 && (t.Clock.Base == 0 || ix.first < t.Clock.Base) {
		t.Clock.Base = ix.first
	}
	t.Clock.anchor(ps)
	if t.Header.Realtime != 0 && t.Header.Realtime < maxSpan {
		since := t.Clock.Time(t.Header.Counter)
		if t.Header.Counter == 0 && t.Clock.Monotonic != 0 {
			since = int64(t.Header.Monotonic) - t.Clock.Monotonic
		}
		t.Clock.Realtime = int64(t.Header.Realtime) - since
	}
}

// Close closes the trace's files.
func (t *Trace) Close() error {
	err := errors.Join(t.close(), t.closeLines(), t.closeFrames())
	t.closePart()
	if t.blocks != nil && t.blocks.close != nil {
		err = errors.Join(err, t.blocks.close())
	}
	return err
}

// maxProblems bounds the list for files that are nothing but damage.
const maxProblems = 100

func (t *Trace) problem(err error) {
	if len(t.Problems) < maxProblems {
		t.Problems = append(t.Problems, err)
	} else {
		t.Unlisted++
	}
}

// Clockless reports whether events of the trace have sequence numbers in place of times. Then all times and durations say
// in which order events of a thread came, and those of threads only roughly.
func (t *Trace) Clockless() bool {
	return slices.ContainsFunc(t.Images, func(im Image) bool { return im.Clock == ClockNone })
}

// Func returns what is known about a function: the zero Func if its image has no symbols.
func (t *Trace) Func(id FuncID) Func {
	if int(id.Image) < len(t.cache) {
		if k := t.cache[id.Image].get(t, id); k != nil {
			return k.fn
		}
	}
	return t.lookup(id)
}

// lookup asks the table of the function's image.
func (t *Trace) lookup(id FuncID) Func {
	if id.Image == SyscallImage && id.ID != 0 {
		return Func{Name: t.syscallName(id)}
	}
	if int(id.Image) >= len(t.syms) || t.syms[id.Image] == nil {
		return Func{}
	}
	f, _ := t.syms[id.Image].Func(id.ID)
	return f
}

// Functions yields the functions that the symbols of the trace's images list as traced, called or not. Images without
// symbols, and tables of Options.Resolve that cannot list theirs as a [names.Table] does, have none.
func (t *Trace) Functions() iter.Seq[Func] {
	return func(yield func(Func) bool) {
		for i := range t.syms {
			for f := range t.FunctionsOf(i) {
				if !yield(f) {
					return
				}
			}
		}
	}
}

// FunctionsOf is Functions for the image at a position in Trace.Images.
func (t *Trace) FunctionsOf(image int) iter.Seq[Func] {
	if tab, ok := t.syms[image].(interface{ Traced() iter.Seq[Func] }); ok {
		return tab.Traced()
	}
	return func(func(Func) bool) {}
}

// Name returns a function's name for people: the result of Options.Name, func_ADDRESS if it has no symbol ([Func]'s
// Display), "image:#id" if nothing is known.
func (t *Trace) Name(id FuncID) string {
	if int(id.Image) < len(t.cache) {
		if k := t.cache[id.Image].get(t, id); k != nil {
			return k.name
		}
	}
	return t.makeName(id, t.lookup(id))
}

// Label returns [Trace.Name] as it is safe to print: a name can hold anything.
func (t *Trace) Label(id FuncID) string {
	if int(id.Image) < len(t.cache) {
		if k := t.cache[id.Image].get(t, id); k != nil {
			return k.label
		}
	}
	return safetext.Line(t.Name(id))
}

// makeName makes the name of a function of which f is known.
func (t *Trace) makeName(id FuncID, f Func) string {
	if id.ID == 0 {
		return ""
	}
	name := f.Display()
	if name == "" {
		return fmt.Sprintf("%s:#%d", t.imageName(id), id.ID)
	}
	if f.Name != "" && t.name != nil {
		name = t.name(name)
	}
	if t.nameImages && int(id.Image) < len(t.Images) {
		name += " [" + t.imageName(id) + "]"
	}
	return name
}

// imageName is what a function's image is called.
func (t *Trace) imageName(id FuncID) string {
	if int(id.Image) >= len(t.Images) {
		return "image"
	}
	im := &t.Images[id.Image]
	if im.Path == "" {
		return im.ID.String()
	}
	return im.Path[strings.LastIndexByte(im.Path, '/')+1:]
}
