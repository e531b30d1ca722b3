package syscalls_test

import (
	"bytes"
	"encoding/binary"
	"io"

	"github.com/fentry-dev/fentry/internal/syscalls"
)

// A reader carries out captures as a recorder does.
type reader struct {
	mem   io.ReaderAt
	call  *syscalls.Made
	spans syscalls.Memory
}

// capture reads what a call's captures say.
func capture(mem io.ReaderAt, call *syscalls.Made, exit bool) syscalls.Memory {
	c := call.Machine.Call(call.Number)
	if c == nil || exit && syscalls.Errno(call.Result) != 0 {
		return nil
	}
	r := &reader{mem: mem, call: call}
	for _, p := range c.Captures() {
		if p.AtExit == exit && p.Applies(&call.Args) {
			r.one(&p)
		}
	}
	return r.spans
}

func (r *reader) bytes(address uint64, n int) []byte {
	if address == 0 || n <= 0 {
		return nil
	}
	b := make([]byte, n)
	n, _ = r.mem.ReadAt(b, int64(address))
	r.spans = append(r.spans, syscalls.Span{Address: address, Bytes: b[:n]})
	return b[:n]
}

func (r *reader) text(address uint64, limit int) {
	if address == 0 {
		return
	}
	b := make([]byte, limit)
	n, _ := r.mem.ReadAt(b, int64(address))
	if n == 0 {
		return
	}
	s, _, nul := bytes.Cut(b[:n], []byte{0})
	r.spans = append(r.spans, syscalls.Span{Address: address, Bytes: s, NUL: nul})
}

func (r *reader) count(p *syscalls.Capture) int {
	switch p.Count {
	case syscalls.CountArg:
		return int(r.call.Args[p.CountArg])
	case syscalls.CountBehind:
		var b [4]byte
		r.mem.ReadAt(b[:], int64(r.call.Args[p.CountArg]))
		return int(int32(binary.LittleEndian.Uint32(b[:])))
	case syscalls.CountResult:
		return int(r.call.Result)
	}
	return 1
}

func (r *reader) one(p *syscalls.Capture) {
	address := r.call.Args[p.Arg]
	switch p.Form {
	case syscalls.String:
		r.text(address, p.Limit)
	case syscalls.Bytes:
		r.bytes(address, min(p.Limit, p.Size*min(r.count(p), 1<<20)))
	case syscalls.Vectors:
		r.vectors(address, r.count(p), p.Limit)
	case syscalls.Pointers:
		for i := range syscalls.MaxArguments + 1 {
			b := r.bytes(address+uint64(8*i), 8)
			if len(b) < 8 || binary.LittleEndian.Uint64(b) == 0 {
				break
			}
			r.text(binary.LittleEndian.Uint64(b), p.Limit)
		}
	case syscalls.Message:
		r.message(address, p.Limit)
	case syscalls.Messages:
		for i := range min(r.count(p), syscalls.MaxElements) {
			r.bytes(address+uint64(64*i), 64)
			r.message(address+uint64(64*i), p.Limit)
		}
	}
}

func (r *reader) vectors(address uint64, n, limit int) {
	b := r.bytes(address, 16*min(n, syscalls.MaxElements))
	for ; len(b) >= 16; b = b[16:] {
		r.bytes(binary.LittleEndian.Uint64(b), int(min(uint64(limit), binary.LittleEndian.Uint64(b[8:]))))
	}
}

func (r *reader) message(address uint64, limit int) {
	b := r.bytes(address, 56)
	if len(b) < 56 {
		return
	}
	le := binary.LittleEndian
	r.bytes(le.Uint64(b), int(min(128, le.Uint32(b[8:]))))
	r.vectors(le.Uint64(b[16:]), int(min(syscalls.MaxElements, le.Uint64(b[24:]))), limit)
	r.bytes(le.Uint64(b[32:]), int(min(512, le.Uint64(b[40:]))))
}
