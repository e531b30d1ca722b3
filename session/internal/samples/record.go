package samples

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/session/internal/perf"
	"github.com/fentry-dev/fentry/stacks"
)

var le = binary.LittleEndian

// kind is what a record tells.
type kind uint8

const (
	sample  kind = iota + 1
	mapping      // something executable was mapped
	ended        // a thread has ended
	lost         // the kernel had no room for records
)

// A record is what the kernel tells.
type record struct {
	kind     kind
	pid, tid uint32 // of the thread, as this process sees it
	time     uint64 // CLOCK_MONOTONIC, ns; later the counter
	count    uint64 // lost: so many records
	regs     stacks.Registers
	stack    []byte // from the stack pointer on
	foreign  bool   // it is a program of another instruction set: nothing is known
}

// Records of linux/perf_event.h.
const (
	typeMmap   = 1
	typeLost   = 2
	typeExit   = 4
	typeSample = 9

	sampleID = 16 // what sample_id_all adds to others than samples: pid, tid, time
	abiNone  = 0
	abi64    = 2
)

// parse reads a record; ok is false if it tells nothing that matters, or is none. m is whose registers are in it.
func parse(b []byte, m *layout) (r record, ok bool) {
	if len(b) < perf.Header+sampleID {
		return r, false
	}
	typ, body := le.Uint32(b), b[perf.Header:]
	if typ == typeSample {
		r.kind = sample
		return r, r.sample(body, m)
	}
	end := body[len(body)-sampleID:]
	r.pid, r.tid, r.time = le.Uint32(end), le.Uint32(end[4:]), le.Uint64(end[8:])
	switch {
	case typ == typeMmap && len(body) > 32+sampleID && !anonymous(body[32:]):
		r.kind = mapping
	case typ == typeLost && len(body) >= 16+sampleID:
		r.kind, r.count = lost, le.Uint64(body[8:])
	case typ == typeExit && len(body) >= 24+sampleID:
		r.kind, r.pid, r.tid, r.time = ended, le.Uint32(body), le.Uint32(body[8:]), le.Uint64(body[16:])
	}
	return r, r.kind != 0
}

// anonymous says whether what was mapped is no file, as of code that is made while a program runs.
func anonymous(name []byte) bool { return bytes.HasPrefix(name, []byte("//anon")) || name[0] == '[' }

// sample reads the body of a sample: TID, TIME, REGS_USER and STACK_USER. It says whether there is one.
func (r *record) sample(b []byte, m *layout) bool {
	word := func() uint64 {
		if len(b) < 8 {
			b = nil
			return 0
		}
		w := le.Uint64(b)
		b = b[8:]
		return w
	}
	task := word()
	r.pid, r.tid, r.time = uint32(task), uint32(task>>32), word()
	abi := word()
	if abi == abiNone {
		return false // a thread of the kernel, or one that is ending
	}
	for _, reg := range m.regs {
		switch v := word(); reg {
		case pcRegister:
			r.regs.PC = v
		default:
			r.regs.Value[reg] = v
			r.regs.Known |= 1 << reg
		}
	}
	r.foreign = abi != abi64
	size := word()
	if size == 0 || size > uint64(len(b)) {
		return b != nil
	}
	stack := b[:size]
	b = b[size:]
	r.stack = append([]byte(nil), stack[:min(word(), size)]...)
	return b != nil
}
