package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/syscalls"
)

// A Syscall is what the beginning or the end of a system call says. Numbers are those of the machine that the task's
// image is made for.
type Syscall struct {
	// Value is the call's number at its beginning, its result (a negative errno if it failed) at its end.
	Value uint64
	Args  []uint64 // at its beginning: as many as the call has, or 6
	Data  []Data   // what memory held that arguments point to
	// Open: the record was not finished, when the task was killed or the trace was read. Nothing else is known.
	Open bool
	// End is the end of the call in the Entry of a leaf: there is nothing between the two.
	End *Syscall
}

// SyscallImage is the Image of FuncIDs that are system calls. A call is a frame like a function's, so it has its place
// among the calls around it and its handlers theirs inside it, and whatever counts or chooses calls of functions does
// so with system calls. It is no position in Trace.Images: there is no file.
const SyscallImage = 1<<32 - 1

// SyscallName is what SyscallImage is called where images have paths: in patterns such as sys:open*.
const SyscallName = "sys"

// unknownSyscall is a system call of which only the end, or that there was one, is known.
var unknownSyscall = FuncID{SyscallImage, 1<<32 - 1}

// SyscallFunc returns the FuncID of a system call by its number.
func SyscallFunc(number uint64) FuncID {
	return FuncID{SyscallImage, uint32(min(number, uint64(unknownSyscall.ID)-2)) + 1}
}

func syscallFunc(s *Syscall) FuncID {
	if s.Open {
		return unknownSyscall
	}
	return SyscallFunc(s.Value)
}

// Syscall returns the number of a system call; false if it is not known, or if id is a function's.
func (id FuncID) Syscall() (number uint64, ok bool) {
	return uint64(id.ID) - 1, id.Image == SyscallImage && id != unknownSyscall && id.ID != 0
}

// Machine returns the instruction set whose system calls those of the trace are.
func (t *Trace) Machine() syscalls.Machine {
	for i := range t.Images { // a recorder's machine need not be the one that an emulator makes
		if m := t.Images[i].Machine; m != "" {
			return syscalls.MachineOf(m)
		}
	}
	if t.Info != nil && t.Info.Machine != "" {
		return syscalls.MachineOf(t.Info.Machine)
	}
	return syscalls.AMD64
}

// syscallName returns sys_ and the name of a system call, as the kernel's functions and ftrace's events are called.
func (t *Trace) syscallName(id FuncID) string {
	number, ok := id.Syscall()
	switch {
	case !ok:
		return "sys_?"
	case t.Machine().Call(number) == nil:
		return fmt.Sprintf("sys_%#x", number)
	}
	return "sys_" + t.Machine().Name(number)
}

// Made returns the system call that an event is the beginning or the end of. An end has the result, but no arguments.
func (t *Trace) Made(ev *Event) *syscalls.Made {
	m := &syscalls.Made{Machine: t.Machine(), NoArgs: true, TaskName: t.TaskName}
	number, known := ev.Func.Syscall()
	m.Number, m.Unknown = number, !known
	s := ev.Sys
	if s == nil {
		return m
	}
	end := s
	if ev.Kind == Entry {
		m.NoArgs = s.Open
		copy(m.Args[:], s.Args)
		m.In = dataMemory(s.Data)
		end = s.End
	}
	if end != nil && !end.Open {
		m.Ended, m.Result, m.Out = true, end.Value, dataMemory(end.Data)
		t.nameChild(m, ev.Comm)
	}
	return m
}

// nameChild gives the task that a system call has made, and that was gone before it had an event of its own, the name
// that every task begins with: that of the one that made it.
func (t *Trace) nameChild(m *syscalls.Made, parent string) {
	switch m.Machine.Name(m.Number) {
	case "clone", "clone3", "fork", "vfork":
	default:
		return
	}
	child := int(m.Result)
	if m.Unknown || child <= 0 || t.TaskName(child) != "" {
		return
	}
	m.TaskName = func(tid int) string {
		if tid == child {
			return parent
		}
		return t.TaskName(tid)
	}
}

// dataMemory is what the records DATA of one end of a call have.
func dataMemory(data []Data) syscalls.Memory {
	if len(data) == 0 {
		return nil
	}
	m := make(syscalls.Memory, len(data))
	for i := range data {
		d := &data[i]
		m[i] = syscalls.Span{Address: d.Address, Bytes: d.Bytes,
			NUL: d.Flags&DataString != 0 && d.Flags&(DataCut|DataUnreadable) == 0}
	}
	return m
}

// TaskName returns the latest name of a task of the trace by its thread id, or of one that the recorder has seen without
// an event of its own; "" if there was none.
func (t *Trace) TaskName(tid int) string {
	t.namesOnce.Do(func() {
		t.taskNames = map[int]string{}
		written := map[int]uint64{} // the counter when the task's name was
		for _, k := range t.Tasks {
			if k.Goroutine != 0 {
				continue
			}
			t.taskNames[k.TID] = k.Comm
			if n := len(k.chunks); n > 0 {
				written[k.TID] = k.chunks[n-1].counter
			}
		}
		if t.Info == nil {
			return
		}
		for i := range t.Info.Tasks { // of what a task has executed since, nothing need be in the trace
			k := &t.Info.Tasks[i]
			counter, known := written[k.TID]
			if !known || t.Clock.At(k.Seen) > t.Clock.Time(counter) {
				t.taskNames[k.TID] = k.Name
			}
		}
	})
	return t.taskNames[tid]
}

// Data is memory that an argument points to.
type Data struct {
	Arg     int       // which argument, or word of a [Captured], from 0; ResultData: a system call's result
	Flags   DataFlags //
	Asked   uint32    // how many bytes were asked for
	Address uint64    // in the program
	Bytes   []byte    // what was read
}

// ResultData in Data.Arg is a system call's result.
const ResultData = 255

// DataFlags say what is not in a Data.
type DataFlags uint16

// Flags of Data.
const (
	DataCut        DataFlags = format.DataCut        // there was more than was asked for
	DataUnreadable DataFlags = format.DataUnreadable // the memory behind Bytes could not be read
	DataString     DataFlags = format.DataString     // Bytes end before a NUL, unless other flags say that none was seen
	DataValues     DataFlags = format.DataValues     // Bytes are what conversions of the format at Address take
)

// A Signal is what is known of a signal that is delivered to a handler.
type Signal struct {
	Number  uint64
	Code    int64  // si_code, 0 if unknown
	Address uint64 // si_addr, 0 if unknown
	PC      uint64 // where the thread was interrupted
	Handler FuncID // whose call is the next; the zero FuncID if it is not traced
	Blocked uint64 // the signals that were blocked where the thread was interrupted, bit 0 for signal 1
}

// maxData bounds the bytes of memory that are kept of one end of a system call.
const maxData = 1 << 16

// syscall decodes the payload of a record SYS, and the records DATA behind it. left is how many words the payload has
// yet.
func (d *decoder) syscall(left *int, take func() uint64) *Syscall {
	s := &Syscall{Value: take()}
	for *left > 0 && len(s.Args) < 6 {
		s.Args = append(s.Args, take())
	}
	for *left > 0 && d.skip(left) {
	}
	d.data(&s.Data)
	return s
}

// data decodes the records DATA that come now, up to a limit, to out if that is not nil.
func (d *decoder) data(out *[]Data) {
	for room := maxData; room > 0; {
		n, ok := d.dataNext()
		if !ok {
			return
		}
		room -= 8 * n
		if out == nil {
			for n > 0 && d.skip(&n) {
			}
			continue
		}
		head, address := d.payload(), d.payload()
		if b := d.bytes(n - 2); uint8(head) != format.NoWord {
			*out = append(*out, newData(head, address, b))
		}
	}
}

// bytes returns the next n words of the chunk, or those that there are.
func (d *decoder) bytes(n int) []byte {
	var b []byte
	for n > 0 && (d.at+8 <= len(d.win) || d.more()) {
		k := min(n, (len(d.win)-d.at)/8)
		b = append(b, d.win[d.at:d.at+8*k]...)
		d.at += 8 * k
		n -= k
	}
	return b
}

// newData makes sense of a record DATA: bytes is its payload behind the first two words.
func newData(head, address uint64, b []byte) Data {
	c := Data{Arg: int(uint8(head)), Flags: DataFlags(head >> 16), Asked: uint32(head >> 32), Address: address}
	if c.Flags&DataString != 0 {
		b, _, _ = bytes.Cut(b, []byte{0})
	}
	c.Bytes = b[:min(uint64(len(b)), uint64(c.Asked))]
	return c
}

// dataNext takes the next word if it is the header of a whole record DATA, and returns how many words follow, 2 at
// least.
func (d *decoder) dataNext() (words int, ok bool) {
	if d.at+8 > len(d.win) && !d.more() {
		return 0, false
	}
	r, ok := format.ParseRecord(uint32(binary.LittleEndian.Uint64(d.win[d.at:]) >> 32))
	if !ok || r.Type != format.RecData || r.Open || r.Words < 2 {
		return 0, false
	}
	d.at += 8
	return r.Words, true
}

// signal decodes the payload of a record SIGNAL.
func (d *decoder) signal(take func() uint64) *Signal {
	s := &Signal{Number: take(), Code: int64(take()), Address: take(), PC: take()}
	if id := uint32(take()); id-d.span.lo < d.span.n || d.resolve(id) {
		s.Handler = FuncID{d.span.image, id - d.span.base}
	}
	s.Blocked = take()
	return s
}

// SysEnter writes the beginning of a system call, with what memory holds that arguments point to.
func (k *TaskWriter) SysEnter(t, nr uint64, args []uint64, data ...Data) {
	k.sys(t, false, append([]uint64{nr}, args...), data)
}

// SysExit writes the end of a system call.
func (k *TaskWriter) SysExit(t, result uint64, data ...Data) { k.sys(t, true, []uint64{result}, data) }

// Signal writes that a signal is delivered to a handler, whose id is that of Enter.
func (k *TaskWriter) Signal(t uint64, s Signal) {
	k.record(t, format.RecSignal, s.Number, uint64(s.Code), s.Address, s.PC, uint64(s.Handler.ID), s.Blocked)
}

// sys writes a record SYS and its DATA, all in one chunk.
func (k *TaskWriter) sys(t uint64, exit bool, payload []uint64, data []Data) {
	k.room(t, 1+dataRoom(payload, data))
	k.withData(t, format.RecSys, exit, payload, data)
}

// dataRoom is how many words the payload of a record and the DATA behind it take.
func dataRoom(payload []uint64, data []Data) int {
	words := len(payload)
	for i := range data {
		words += 1 + dataWords(&data[i])
	}
	return words
}

// withData writes a record and its DATA, for which there is room. Bytes that do not fit into a record are dropped.
func (k *TaskWriter) withData(t uint64, typ uint8, exit bool, payload []uint64, data []Data) {
	put := func(typ uint8, exit bool, payload ...uint64) {
		k.word(uint32(t), format.Record{Type: typ, Words: len(payload), Exit: exit}.ID())
		for _, p := range payload {
			k.buf = binary.LittleEndian.AppendUint64(k.buf, p)
		}
	}
	put(typ, exit, payload...)
	for i := range data {
		c := &data[i]
		p := append(make([]uint64, 0, dataWords(c)),
			uint64(uint8(c.Arg))|uint64(c.Flags)<<16|uint64(c.Asked)<<32, c.Address)
		for b := c.Bytes; len(p) < cap(p); {
			var w [8]byte
			b = b[copy(w[:], b):]
			p = append(p, binary.LittleEndian.Uint64(w[:]))
		}
		put(format.RecData, false, p...)
	}
}

// dataWords is how many words the payload of a record DATA has.
func dataWords(c *Data) int { return min(2+(len(c.Bytes)+7)/8, format.RecordWords) }
