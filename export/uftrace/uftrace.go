// Package uftrace writes a trace as uftrace does: a directory that its commands replay, report, graph, tui and dump
// read, and its scripts.
//
// Each thread has a file; a stack that is not the one a thread began on (a coroutine, a signal handler on a stack of its
// own) has one too, as a thread with a number from 2,000,000,000 on, which no thread has. The format has no room for
// calls that are nested deeper than 1,024 levels, and none for marks. Arguments and results that were recorded are texts
// (values.go).
package uftrace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// What the header of the file info has, from uftrace's uftrace.h: bits of the features that data has, and of the texts
// that follow, which are in the order of their bits.
const (
	version    = 4
	headerSize = 40

	featureTaskSession = 1 << 1
	featureArguments   = 1 << 3
	featureResults     = 1 << 4
	featureSymRelAddr  = 1 << 5
	featureMaxStack    = 1 << 6

	infoExeName  = 1 << 0
	infoCmdline  = 1 << 3
	infoTaskInfo = 1 << 7
	infoValues   = 1 << 10
	infoPatterns = 1 << 12

	maxStack = 1024
)

// Types of records, and what marks one.
const (
	recordEntry = 0
	recordExit  = 1
	recordLost  = 2
	magic       = 5
	more        = 1 << 2 // values follow
)

// firstStack is the thread number of the first track that is no thread. Linux' thread ids end at 2^22.
const firstStack = 2_000_000_000

// Images are put at addresses of the writer's own: where they were does not matter to readers, and those of two
// processes could be at the same place. A record has 48 bits for an address.
const (
	imageBits = 36
	maxImages = 1<<(47-imageBits) - 1
	nameless  = 1 << (imageBits - 1) // added to the id of a function whose address is not known
)

// session is the name of the only session, which all processes have in common.
const session = "0000000000000001"

// flushAt is how many bytes of a track are collected.
const flushAt = 64 << 10

// Write writes the files into the empty directory dir.
func Write(dir *os.Root, s *export.Source) (sum export.Summary, err error) {
	if len(s.Trace.Images) > maxImages {
		return sum, fmt.Errorf("%s: %d program images; uftrace's format takes %d", s.Trace.Dir, len(s.Trace.Images), maxImages)
	}
	p := &writer{dir: dir, t: s.Trace, sum: &sum, base: s.Trace.Clock.Monotonic, functions: map[trace.FuncID]bool{},
		values: values{t: s.Trace}, numbers: export.NewNumbers(s.Trace, false)}
	for _, k := range s.Tasks {
		p.data = nil
		spans := &export.Spans{W: p, Sum: &sum, Values: true}
		if err := s.Walk([]*trace.Task{k}, spans.Event); err != nil {
			return sum, err
		}
		if err := spans.Close(); err != nil {
			return sum, err
		}
		for _, d := range p.data {
			if err := p.flush(d); err != nil {
				return sum, err
			}
		}
		p.stacks += len(p.data) // numbers of tracks begin again with each task
	}
	for _, write := range []func() error{p.writeTasks, p.writeMap, p.writeSymbols, p.writeInfo} {
		if err := write(); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// data is the records of a track that are not written yet.
type data struct {
	tid, pid int
	comm     string
	start    int64
	depth    int
	buf      []byte
}

type writer struct {
	dir       *os.Root
	t         *trace.Trace
	sum       *export.Summary
	base      int64
	data      []*data // of the task at hand, by Track.Index
	stacks    int     // tracks of the tasks before
	numbers   export.Numbers
	threads   []*data // all, in the order they appear
	functions map[trace.FuncID]bool
	values    values
}

// Begin is that of export.SpanWriter.
func (p *writer) Begin(k *export.Track, at int64, fn trace.FuncID) error {
	if fn.Image == trace.SyscallImage { // there is no file that could have its symbol
		p.sum.Calls--
		p.sum.Leave("system calls", 1)
		p.leaveValues(k.Event)
		return nil
	}
	d := p.track(k, at)
	d.depth++
	if d.depth > maxStack {
		p.sum.Calls--
		p.sum.Leave("calls nested deeper than 1,024 levels", 1)
		p.leaveValues(k.Event)
		return nil
	}
	p.functions[fn] = true
	return p.record(d, at, recordEntry, d.depth-1, p.addr(fn), p.valuesOf(k.Event))
}

// End is that of export.SpanWriter.
func (p *writer) End(k *export.Track, at int64, fn trace.FuncID) error {
	if fn.Image == trace.SyscallImage {
		p.leaveValues(k.Event)
		return nil
	}
	d := p.track(k, at)
	d.depth--
	if d.depth >= maxStack {
		p.leaveValues(k.Event)
		return nil
	}
	return p.record(d, at, recordExit, d.depth, p.addr(fn), p.valuesOf(k.Event))
}

// Note is that of export.SpanWriter.
func (p *writer) Note(k *export.Track, at int64, ev *trace.Event) error {
	switch ev.Kind {
	case trace.Lost:
		d := p.track(k, at)
		return p.record(d, at, recordLost, min(d.depth, maxStack-1), min(ev.Count, 1<<48-1), nil)
	case trace.Entry: // of the function tracer: a call that takes no time
		if err := p.Begin(k, at, ev.Func); err != nil {
			return err
		}
		return p.End(k, at, ev.Func)
	}
	p.sum.LeaveEvent(ev)
	return nil
}

func (p *writer) track(k *export.Track, at int64) *data {
	for k.Index >= len(p.data) {
		p.data = append(p.data, nil)
	}
	d := p.data[k.Index]
	if d == nil {
		d = &data{tid: p.numbers.Of(k.Task), pid: k.Task.PID, comm: p.numbers.TrackName(k), start: at}
		if !k.Main() {
			d.tid = firstStack + p.stacks + k.Index
		}
		p.data[k.Index] = d
		p.threads = append(p.threads, d)
	}
	return d
}

func (p *writer) addr(fn trace.FuncID) uint64 {
	return uint64(fn.Image+1)<<imageBits + p.offset(fn)
}

// offset is the address of a function in its image's file.
func (p *writer) offset(fn trace.FuncID) uint64 {
	if addr := p.t.Func(fn).Addr; addr != 0 && addr < nameless {
		return addr
	}
	return nameless + uint64(fn.ID)
}

// record appends a record, with the values of the call behind it, if there are any.
func (p *writer) record(d *data, at int64, typ, depth int, addr uint64, values []byte) error {
	if len(values) > 0 {
		typ |= more
	}
	d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(p.base+at))
	d.buf = binary.LittleEndian.AppendUint64(d.buf, uint64(typ)|magic<<3|uint64(depth)<<6|addr<<16)
	d.buf = append(d.buf, values...)
	if len(d.buf) >= flushAt {
		return p.flush(d)
	}
	return nil
}

// flush appends what is collected to the file of a thread. Tracks can be more than files that can be open.
func (p *writer) flush(d *data) error {
	if d == nil || len(d.buf) == 0 {
		return nil
	}
	f, err := p.dir.OpenFile(fmt.Sprintf("%d.dat", d.tid), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(d.buf)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	d.buf = d.buf[:0]
	return err
}

func (p *writer) file(name string, b *bytes.Buffer) error {
	return p.dir.WriteFile(name, b.Bytes(), 0o666)
}

// writeTasks lists processes and threads: the session, then each as it begins.
func (p *writer) writeTasks() error {
	type line struct {
		at   int64
		text string
	}
	stamp := func(at int64) string {
		ns := p.base + at
		return fmt.Sprintf("timestamp=%d.%09d", ns/1e9, ns%1e9)
	}
	first := map[int]*trace.Process{} // of those that had a number, the first with a task
	for _, q := range p.t.Processes {
		if first[q.PID] == nil && len(q.Tasks) > 0 {
			first[q.PID] = q
		}
	}
	var lines []line
	seen := map[int]bool{}
	for _, d := range p.threads {
		if !seen[d.pid] {
			seen[d.pid] = true
			name, start := p.program(first[d.pid])
			start = min(start, d.start)
			lines = append(lines, line{start, fmt.Sprintf("SESS %s pid=%d sid=%s exename=\"%s\"", stamp(start), d.pid, session,
				strings.ReplaceAll(safetext.Line(name), `"`, "'"))})
		}
		lines = append(lines, line{d.start, fmt.Sprintf("TASK %s tid=%d pid=%d", stamp(d.start), d.tid, d.pid)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(min(max(a.at-b.at, -1), 1)) })
	var b bytes.Buffer
	told := map[string]bool{}
	for _, l := range lines {
		// A thread whose process executed another program, or whose number was used again, is listed once.
		kind, rest, _ := strings.Cut(l.text, " ")
		_, who, _ := strings.Cut(rest, " ")
		if key := kind + who; !told[key] {
			told[key] = true
			fmt.Fprintln(&b, l.text)
		}
	}
	return p.file("task.txt", &b)
}

// program returns what a process ran, and since when; of none, nothing.
func (p *writer) program(q *trace.Process) (name string, start int64) {
	if q == nil {
		return "", 0
	}
	if i := q.Tasks[0].Image; i < len(p.t.Images) {
		return p.t.Images[i].Path, q.Start
	}
	return q.Tasks[0].Comm, q.Start
}

// paths are the paths of the images as the map and the files with symbols have them, which must be the same, absolute,
// and end in different names: the files are called by those.
func (p *writer) paths() []string {
	taken := map[string]bool{}
	var all []string
	for i, im := range p.t.Images {
		file := im.File
		if file == "" {
			file = im.Exe
		}
		if !path.IsAbs(file) {
			file = path.Join("/", im.Path)
		}
		file = safetext.Line(strings.ReplaceAll(file, " ", "_"))
		for taken[path.Base(file)] {
			file = fmt.Sprintf("%s-%d", file, i)
		}
		taken[path.Base(file)] = true
		all = append(all, file)
	}
	return all
}

// writeMap lists the images as /proc/PID/maps does, and a stack behind them, where uftrace expects the end.
func (p *writer) writeMap() error {
	var b bytes.Buffer
	paths := p.paths()
	for i, im := range p.t.Images {
		start := uint64(i+1) << imageBits
		fmt.Fprintf(&b, "%012x-%012x r-xp 00000000 00:00 0 %26s %s", start, start+1<<imageBits-1<<12, "",
			paths[i])
		if im.BuildID != "" {
			fmt.Fprintf(&b, " build-id:%s", safetext.Line(im.BuildID))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 %26s [stack]\n", "")
	return p.file("sid-"+session+".map", &b)
}

// writeSymbols writes the symbols of each image, by their addresses.
func (p *writer) writeSymbols() error {
	of, paths := make([][]trace.FuncID, len(p.t.Images)), p.paths()
	for fn := range p.functions {
		if int(fn.Image) < len(of) {
			of[fn.Image] = append(of[fn.Image], fn)
		}
	}
	for i, fns := range of {
		if len(fns) == 0 {
			continue
		}
		slices.SortFunc(fns, func(a, b trace.FuncID) int {
			if x, y := p.offset(a), p.offset(b); x != y {
				return int(min(max(int64(x)-int64(y), -1), 1))
			}
			return int(a.ID) - int(b.ID)
		})
		var b bytes.Buffer
		fmt.Fprintf(&b, "# symbols: %d\n# path name: %s\n# build-id: %s\n", len(fns), paths[i],
			safetext.Line(p.t.Images[i].BuildID))
		end := uint64(0)
		for _, fn := range fns {
			f := p.t.Func(fn)
			name := f.Name // uftrace demangles, but what it has to find by its name
			if name == "" || p.values.has(fn) {
				name = p.t.Name(fn)
			}
			fmt.Fprintf(&b, "%016x T %s\n", p.offset(fn), safetext.Line(name))
			end = p.offset(fn) + max(f.Size, 1)
		}
		fmt.Fprintf(&b, "%016x ? __sym_end\n", end)
		if err := p.file(path.Base(paths[i])+".sym", &b); err != nil {
			return err
		}
	}
	return nil
}

func (p *writer) writeInfo() error {
	var b bytes.Buffer
	b.WriteString("Ftrace!\x00")
	head := binary.LittleEndian.AppendUint32(nil, version)
	head = binary.LittleEndian.AppendUint16(head, headerSize)
	head = append(head, 1, 2) // little-endian, 64 bits
	features, infos := uint64(featureTaskSession|featureSymRelAddr|featureMaxStack), uint64(infoExeName|infoCmdline|infoTaskInfo)
	valueFeatures, specs := p.values.specs()
	features |= valueFeatures
	if specs != "" {
		infos |= infoValues | infoPatterns
	}
	head = binary.LittleEndian.AppendUint64(head, features)
	head = binary.LittleEndian.AppendUint64(head, infos)
	head = binary.LittleEndian.AppendUint16(head, maxStack)
	b.Write(append(head, make([]byte, headerSize-8-len(head))...))
	exe, command := "", "fentry export"
	if len(p.t.Images) > 0 {
		exe = safetext.Line(p.t.Images[0].Path)
	}
	if p.t.Info != nil && len(p.t.Info.Command) > 0 {
		command = safetext.Line(trace.QuoteArgs(p.t.Info.Command))
	}
	var tids []string
	told := map[int]bool{}
	for _, d := range p.threads {
		if !told[d.tid] {
			told[d.tid] = true
			tids = append(tids, strconv.Itoa(d.tid))
		}
	}
	fmt.Fprintf(&b, "exename:%s\ncmdline:%s\ntaskinfo:lines=2\ntaskinfo:nr_tid=%d\ntaskinfo:tids=%s\n", exe, command, len(tids),
		strings.Join(tids, ","))
	b.WriteString(specs)
	if err := p.file("info", &b); err != nil {
		return err
	}
	return p.file("default.opts", new(bytes.Buffer))
}
