package tracedat

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Types of events, as the kernel numbers its tracers' own (kernel/trace/trace.h, enum trace_type).
const (
	idFunction = 1
	idPrint    = 5
	idExit     = 10
	idEntry    = 11
)

// printText is where the text of a print event begins.
const printText = 16

// field is a field of an event.
type field struct {
	decl         string
	offset, size int
	signed       bool
}

var common = []field{
	{"unsigned short common_type", 0, 2, false},
	{"unsigned char common_flags", 2, 1, false},
	{"unsigned char common_preempt_count", 3, 1, false},
	{"int common_pid", 4, 4, true},
}

// events are those that a file can have, as the kernel describes them below events/ftrace.
var events = []struct {
	name   string
	id     int
	fields []field
	print  string
}{
	{
		"function", idFunction,
		[]field{{"unsigned long ip", 8, 8, false}, {"unsigned long parent_ip", 16, 8, false}},
		`" %ps <-- %ps", (void *)REC->ip, (void *)REC->parent_ip`,
	},
	{
		"print", idPrint,
		[]field{{"unsigned long ip", 8, 8, false}, {"char buf[]", printText, 0, false}},
		`"%s", REC->buf`,
	},
	{
		"funcgraph_exit", idExit,
		[]field{
			{"unsigned long func", 8, 8, false}, {"int depth", 16, 4, true}, {"unsigned int overrun", 20, 4, false},
			{"unsigned long long calltime", 24, 8, false}, {"unsigned long long rettime", 32, 8, false},
		},
		`"<-- %ps (%d) (start: %llx  end: %llx) over: %d", (void *)REC->func, REC->depth, REC->calltime, REC->rettime, REC->depth`,
	},
	{
		"funcgraph_entry", idEntry,
		[]field{{"unsigned long func", 8, 8, false}, {"int depth", 16, 4, true}},
		`"--> %ps (%d)", (void *)REC->func, REC->depth`,
	},
}

func fieldLines(b *bytes.Buffer, fields []field) {
	for _, f := range fields {
		signed := 0
		if f.signed {
			signed = 1
		}
		fmt.Fprintf(b, "\tfield:%s;\toffset:%d;\tsize:%d;\tsigned:%d;\n", f.decl, f.offset, f.size, signed)
	}
}

// Options of the file, by their numbers.
const optionTraceClock = 4

// write writes the file: what describes it, and the pages.
func (p *writer) write(w *bufio.Writer) error {
	head := p.head6()
	// The list of the places of the pages, and the pages themselves, are the rest.
	size := len(head) + len("flyrecord\x00") + 16*len(p.pages.buffers)
	offset := int64(size+pageSize-1) / pageSize * pageSize
	fill := int(offset) - size
	head = append(head, "flyrecord\x00"...)
	for _, b := range p.pages.buffers {
		head = binary.LittleEndian.AppendUint64(head, uint64(offset))
		head = binary.LittleEndian.AppendUint64(head, uint64(b.full)*pageSize)
		offset += int64(b.full) * pageSize
	}
	w.Write(append(head, make([]byte, fill)...))
	for _, b := range p.pages.buffers {
		if err := p.pages.write(w, b); err != nil {
			return err
		}
	}
	return nil
}

// head6 is what stands in front of the places of the pages, as trace-cmd.dat.v6(5) describes it.
func (p *writer) head6() []byte {
	b := []byte("\x17\x08\x44tracing6\x00")
	b = append(b, 0, 8) // little-endian, size of a long
	b = binary.LittleEndian.AppendUint32(b, pageSize)
	text := func(size int, s string) {
		if size == 4 {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		} else {
			b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
		}
		b = append(b, s...)
	}
	var t bytes.Buffer
	fieldLines(&t, []field{
		{"u64 timestamp", 0, 8, false}, {"local_t commit", 8, 8, true}, {"int overwrite", 8, 1, true},
		{"char data", pageHead, pageData, true},
	})
	b = append(b, "header_page\x00"...)
	text(8, strings.ReplaceAll(t.String(), "field:", "field: "))
	b = append(b, "header_event\x00"...)
	text(8, "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n"+
		"\tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n")
	b = binary.LittleEndian.AppendUint32(b, uint32(len(events)))
	for _, ev := range events {
		t.Reset()
		fmt.Fprintf(&t, "name: %s\nID: %d\nformat:\n", ev.name, ev.id)
		fieldLines(&t, common)
		t.WriteByte('\n')
		fieldLines(&t, ev.fields)
		fmt.Fprintf(&t, "\nprint fmt: %s\n", ev.print)
		text(8, t.String())
	}
	b = binary.LittleEndian.AppendUint32(b, 0) // no events of other systems
	text(4, p.symbols.kallsyms())
	text(4, "") // formats of trace_printk
	text(8, p.symbols.commands())
	b = binary.LittleEndian.AppendUint32(b, uint32(len(p.pages.buffers)))
	b = append(b, "options  \x00"...)
	b = binary.LittleEndian.AppendUint16(b, optionTraceClock)
	text(4, "local global [mono]\n\x00")
	return binary.LittleEndian.AppendUint16(b, 0)
}

// symbols are the names in the file.
type symbols struct {
	t       *trace.Trace
	moved   []uint64 // what addresses of each image are moved by
	known   map[trace.FuncID]uint64
	tids    map[int]string // newest name
	numbers export.Numbers
}

// apart is how far images are put apart that were at the same addresses, in different processes: more than processes
// have addresses.
const apart = 1 << 48

func newSymbols(t *trace.Trace) *symbols {
	s := &symbols{t: t, known: map[trace.FuncID]uint64{}, tids: map[int]string{}, moved: make([]uint64, len(t.Images)),
		numbers: export.NewNumbers(t, false)}
	biases := map[uint64]bool{}
	for i, im := range t.Images {
		s.moved[i] = im.Bias
		if biases[im.Bias] {
			s.moved[i] += uint64(i) * apart
		}
		biases[im.Bias] = true
	}
	return s
}

// addr is the address of a function. One whose address is not known has its number, above all others.
func (s *symbols) addr(fn trace.FuncID) uint64 {
	a, ok := s.known[fn]
	if !ok {
		a = s.t.Func(fn).Addr
		if int(fn.Image) >= len(s.moved) || a == 0 {
			a = 1<<63 | uint64(fn.Image)<<32 | uint64(fn.ID)
		} else {
			a += s.moved[fn.Image]
		}
		s.known[fn] = a
	}
	return a
}

func (s *symbols) task(k *trace.Task) { s.tids[s.numbers.Of(k)] = s.numbers.Name(k) }

// kallsyms lists the functions as /proc/kallsyms does.
func (s *symbols) kallsyms() string {
	type symbol struct {
		addr uint64
		name string
	}
	var all []symbol
	for fn, addr := range s.known {
		all = append(all, symbol{addr, safetext.Line(s.t.Name(fn))})
	}
	slices.SortFunc(all, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.addr, b.addr), strings.Compare(a.name, b.name))
	})
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%016x T %s\n", f.addr, strings.ReplaceAll(f.name, " ", "\u00a0"))
	}
	return b.String()
}

// commands lists the threads' names.
func (s *symbols) commands() string {
	var tids []int
	for tid := range s.tids {
		tids = append(tids, tid)
	}
	slices.Sort(tids)
	var b strings.Builder
	for _, tid := range tids {
		fmt.Fprintf(&b, "%d %s\n", tid, safetext.Line(s.tids[tid]))
	}
	return b.String()
}
