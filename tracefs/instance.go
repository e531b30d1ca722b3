//go:build linux

package tracefs

import (
	"cmp"
	"maps"
	"slices"
	"syscall"

	"github.com/fentry-dev/fentry/trace"
)

// instance is the files of the top directory, or of one below instances: settings and a view of the buffer of its own.
// What it has is guarded by FS.mu.
type instance struct {
	fs      *FS
	name    string // "": the top one
	epochs  epochs
	cleared uint64           // counter: what is older is not shown
	seen    map[taskID]place // by task, how far trace_pipe has come
	marks   []mark
	probes  []*probe
	stackAt map[stackKey]bool // calls at which stacks were asked for
	snap    []byte            // snapshot; nil: there is none
	asked   bool              // a probe asks for one
	dumps   []int             // probes ask for the text of these threads; -1: of all
	clock   string
	sizes   map[int]int64 // buffer_size_kb of per_cpu, where it is another
	size    int64         // buffer_size_kb; 0: all that there is
	gone    bool          // it has been removed
}

// stackKey is a call, or those of a function at one time.
type stackKey struct {
	task taskID
	time int64
	fn   int // the function; of a system call, -2 less its number
}

// keyOf is the key of an event, of a function.
func keyOf(ev *trace.Event, fn int) stackKey {
	if ev.Func.Image == trace.SyscallImage {
		fn = -2 - int(ev.Func.ID)
	}
	return stackKey{idOf(ev.Task), ev.Time, fn}
}

// mostStacks bounds how many stacks of calls are remembered.
const mostStacks = 10_000

// taskID tells the tasks of all copies of the buffer apart.
type taskID struct {
	pid, tid int
	key      uint64
}

func idOf(k *trace.Task) taskID { return taskID{k.PID, k.TID, k.Key} }

// A mark is what was written to trace_marker.
type mark struct {
	at       uint64 // counter
	task     *trace.Task
	text     string
	consumed bool
}

// mostMarks bounds how many are kept: the oldest go.
const mostMarks = 10_000

// mostMark is how long a mark may be, as in the kernel.
const mostMark = 1024

func (fs *FS) newInstance(name string) *instance {
	in := &instance{fs: fs, name: name, seen: make(map[taskID]place), stackAt: make(map[stackKey]bool), clock: clocks[0]}
	in.cleared = fs.target.Now()
	in.epochs.add(in.cleared, newSettings())
	return in
}

// sizeOf is the buffer_size_kb of a thread.
func (in *instance) sizeOf(cpu int) int64 {
	if size, ok := in.sizes[cpu]; ok {
		return size
	}
	return cmp.Or(in.size, in.fs.target.Size()>>10)
}

// resize is a write to buffer_size_kb, of all or of a thread.
func (in *instance) resize(cpu int, s string) error {
	n, err := parseNumber(s)
	switch {
	case err != nil:
		return err
	case n == 0:
		return syscall.EINVAL
	case n > mostSize:
		return syscall.ENOMEM
	}
	in.fs.news++
	switch {
	case cpu < 0:
		in.size, in.sizes = int64(n), nil
		return nil
	case in.sizes == nil:
		in.sizes = make(map[int]int64)
	}
	in.sizes[cpu] = int64(n)
	return nil
}

// mostSize is the largest buffer_size_kb, 1 TiB.
const mostSize = 1 << 30

// change makes a change of an instance's settings from now on, and switches functions accordingly.
func (in *instance) change(f func(*settings)) error {
	return in.changeAt(in.fs.target.Now(), f)
}

func (in *instance) changeAt(at uint64, f func(*settings)) error {
	s := *in.epochs.now()
	f(&s)
	in.epochs.add(at, s)
	in.fs.news++
	return in.fs.install()
}

// clear forgets what was recorded so far.
func (in *instance) clear() {
	in.cleared, in.marks = in.fs.target.Now(), nil
	clear(in.seen)
	clear(in.stackAt)
}

// takeSnapshot keeps what is in the buffer, and empties it.
func (in *instance) takeSnapshot() error {
	t, err := in.fs.open()
	if err != nil {
		return err
	}
	defer t.Close()
	return in.keep(t)
}

// keep makes a snapshot of a copy of the buffer.
func (in *instance) keep(t *trace.Trace) error {
	text, n, err := in.text(t, -1, 0, false)
	if err != nil {
		return err
	}
	if in.snap = []byte{}; n > 0 {
		in.snap = text
	}
	in.asked = false
	in.clear()
	return nil
}

// wantsCopy tells whether a probe waits for a copy of the buffer.
func (in *instance) wantsCopy() bool { return in.asked || len(in.dumps) > 0 }

// dump writes what a copy of the buffer has to the console.
func (in *instance) dump(t *trace.Trace) error {
	for len(in.dumps) > 0 {
		text, _, err := in.text(t, in.dumps[0], 0, false)
		if err != nil {
			return err
		}
		in.fs.console.put(text)
		in.dumps = in.dumps[1:]
	}
	return nil
}

// setTracer is a write to current_tracer: another tracer begins with an empty buffer.
func (in *instance) setTracer(name string) error {
	if !slices.Contains(tracers, name) {
		return syscall.EINVAL
	}
	if in.epochs.now().tracer == name {
		return nil
	}
	err := in.change(func(s *settings) { s.tracer = name })
	in.clear()
	return err
}

// setOption is a write to trace_options: a name, or "no" and a name.
func (in *instance) setOption(name string) error {
	on := true
	flags := in.epochs.now().flags
	if _, ok := flags[name]; !ok {
		if len(name) < 2 || name[:2] != "no" {
			return syscall.EINVAL
		}
		if name, on = name[2:], false; name == "overwrite" {
			return syscall.EINVAL // the newest events are kept, always
		}
		if _, ok := flags[name]; !ok {
			return syscall.EINVAL
		}
	}
	return in.change(func(s *settings) {
		s.flags = maps.Clone(s.flags)
		s.flags[name] = on
	})
}

// optionLines is the text of trace_options.
func (in *instance) optionLines() (b []byte) {
	for _, o := range options {
		if !in.epochs.now().flags[o.name] {
			b = append(b, "no"...)
		}
		b = append(append(b, o.name...), '\n')
	}
	return b
}
