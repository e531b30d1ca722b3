package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/parquet"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// maxPaths bounds the paths that are kept: a damaged trace can have one for each call. Calls on further ones get the
// path of the innermost call around them that has one.
const maxPaths = 1 << 22

// Write adds the files of a run to the data set in root.
func Write(root *os.Root, s *export.Source) (sum export.Summary, err error) {
	return write(root, s, kind{".parquet", func(w io.Writer, _ *run, columns []parquet.Column) (sink, error) {
		return parquet.NewWriter(w, columns)
	}})
}

// WriteCSV adds the same tables as files of comma-separated values.
func WriteCSV(root *os.Root, s *export.Source) (sum export.Summary, err error) {
	return write(root, s, kind{".csv", newCSV})
}

func write(root *os.Root, s *export.Source, in kind) (sum export.Summary, err error) {
	if s.Trace.Clockless() {
		return sum, fmt.Errorf("%s: recorded without a clock: there are no times, which the tables need", s.Trace.Dir)
	}
	r := &run{
		root: root, kind: in, all: map[string]*table{},
		host: host(s.Trace), program: program(s.Trace), number: number(s.Trace),
	}
	return sum, r.close(r.write(s, &sum))
}

// write writes all tables, under other names.
func (r *run) write(s *export.Source, sum *export.Summary) error {
	calls, err := r.table("calls")
	if err != nil {
		return err
	}
	paths, err := r.table("paths")
	if err != nil {
		return err
	}
	w := &writer{
		t: s.Trace, calls: calls, paths: paths, sum: sum, known: map[step]int32{}, functions: map[trace.FuncID]int32{},
	}
	for _, k := range s.Tasks {
		w.open = nil
		spans := &export.Spans{W: w, Sum: sum}
		err := s.Walk([]*trace.Task{k}, func(ev *trace.Event) error { return errors.Join(spans.Event(ev), calls.Err()) })
		if err == nil {
			err = spans.Close()
		}
		if err != nil {
			return err
		}
	}
	functions, err := r.table("functions")
	if err != nil {
		return err
	}
	for i, fn := range w.list {
		im := trace.Image{}
		if int(fn.Image) < len(s.Trace.Images) {
			im = s.Trace.Images[fn.Image]
		}
		functions.Int(int64(i + 1))
		functions.Text(s.Trace.Name(fn))
		functions.Text(im.Path)
		functions.Text(im.BuildID)
	}
	tasks, err := r.table("tasks")
	if err != nil {
		return err
	}
	for _, k := range s.Tasks {
		tasks.Int(int64(k.Index))
		tasks.Int(int64(k.PID))
		tasks.Int(int64(k.TID))
		tasks.Text(k.Comm)
		tasks.Int(k.Start)
	}
	runs, err := r.table("runs")
	if err != nil {
		return err
	}
	about(runs, s.Trace, sum)
	return nil
}

// about writes the run's row.
func about(runs *table, t *trace.Trace, sum *export.Summary) {
	info := trace.Info{ExitStatus: -1, Start: time.Unix(0, t.Clock.Realtime)}
	if t.Info != nil {
		info = *t.Info
	}
	build := ""
	if len(t.Images) > 0 {
		build = t.Images[0].BuildID
	}
	runs.Int(info.Start.UnixNano())
	runs.Int(int64(info.Duration))
	runs.Text(strings.Join(info.Command, " "))
	runs.Text(build)
	runs.Int(int64(info.ExitStatus))
	runs.Int(int64(info.Signal))
	runs.Text(info.Machine)
	runs.Text(info.Kernel)
	runs.Text(info.CPU)
	runs.Int(int64(info.CPUs))
	runs.Int(int64(min(sum.Calls, math.MaxInt64)))
	runs.Int(int64(min(t.Lost, math.MaxInt64)))
}

// A step is a path and a function that is called on it.
type step struct {
	parent int32
	fn     trace.FuncID
}

// A call is an open one.
type call struct {
	path   int32
	depth  int32 // of the path: 1 is outermost
	start  int64
	inside int64 // time of the calls that it made
}

type writer struct {
	t            *trace.Trace
	calls, paths *table
	sum          *export.Summary
	open         map[*export.Track][]call // of the task at hand
	known        map[step]int32
	functions    map[trace.FuncID]int32
	list         []trace.FuncID // by function - 1
}

// Begin is that of export.SpanWriter.
func (w *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	if w.open == nil {
		w.open = map[*export.Track][]call{}
	}
	open := w.open[k]
	w.open[k] = append(open, w.enter(open, at, fn))
	return nil
}

// enter returns a call that begins inside those that are open.
func (w *writer) enter(open []call, at int64, fn trace.FuncID) call {
	c := call{start: at}
	parent := call{}
	if n := len(open); n > 0 {
		parent = open[n-1]
	}
	s := step{parent.path, fn}
	c.depth = parent.depth + 1
	var ok bool
	if c.path, ok = w.known[s]; ok {
		return c
	}
	if len(w.known) == maxPaths {
		w.sum.Leave("paths beyond the first 4,194,304, calls on which have shorter ones: calls", 1)
		c.path, c.depth = parent.path, parent.depth
		return c
	}
	c.path = int32(len(w.known) + 1)
	w.known[s] = c.path
	w.paths.Int(int64(c.path))
	w.paths.Int(int64(parent.path))
	w.paths.Int(int64(w.function(fn)))
	w.paths.Int(int64(c.depth))
	return c
}

// function returns a function's number.
func (w *writer) function(fn trace.FuncID) int32 {
	n, ok := w.functions[fn]
	if !ok {
		w.list = append(w.list, fn)
		n = int32(len(w.list))
		w.functions[fn] = n
	}
	return n
}

// End is that of export.SpanWriter.
func (w *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	open := w.open[k]
	n := len(open) - 1
	c := open[n]
	w.open[k] = open[:n]
	duration, self, end := at-c.start, max(0, at-c.start-c.inside), trace.Unfinished.String()
	if ev := k.Event; ev != nil {
		duration, self, end = ev.Dur, ev.Self, ev.Kind.String()
	}
	if n > 0 {
		open[n-1].inside += duration
	}
	w.call(k, fn, c.path, at-duration, duration, self, end)
	return nil
}

// Note is that of export.SpanWriter.
func (w *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	if ev.Kind != trace.Entry {
		w.sum.LeaveEvent(ev)
		return nil
	}
	w.call(k, ev.Func, w.enter(w.open[k], at, ev.Func).path, at, 0, 0, trace.Entry.String())
	return nil
}

func (w *writer) call(k *export.Track, fn trace.FuncID, path int32, start, duration, self int64, end string) {
	w.calls.Int(int64(k.Task.Index))
	w.calls.Int(int64(w.function(fn)))
	w.calls.Int(int64(path))
	w.calls.Int(start)
	w.calls.Int(duration)
	w.calls.Int(self)
	w.calls.Text(end)
}

// number names a run: when it began, and a number that no other run has, on whichever machine.
func number(t *trace.Trace) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", host(t))
	for _, v := range []uint64{t.Header.Counter, t.Header.Monotonic, t.Header.Realtime, uint64(t.Header.Leader)} {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
	at := time.Unix(0, int64(min(t.Header.Realtime, math.MaxInt64))).UTC()
	return fmt.Sprintf("%s-%016x", at.Format("20060102T150405Z"), h.Sum64())
}

func host(t *trace.Trace) string {
	if t.Info == nil || t.Info.Host == "" {
		return "unknown"
	}
	return t.Info.Host
}

// program is what the program's file is called.
func program(t *trace.Trace) string {
	name := ""
	if len(t.Images) > 0 {
		name = path.Base(t.Images[0].Path)
	} else if t.Info != nil && len(t.Info.Command) > 0 {
		name = path.Base(t.Info.Command[0])
	}
	if name == "" || name == "." || name == "/" {
		return "unknown"
	}
	return name
}

// maxComponent is how long a name is in a directory's, in bytes: that has at most 255 with what is in front.
const maxComponent = 200

// component makes a text fit to be the value in a directory's name, escaped as in an address.
func component(s string) string {
	var b strings.Builder
	for _, c := range []byte(safetext.Line(s)) {
		switch {
		case b.Len() > maxComponent-3:
			return b.String()
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
