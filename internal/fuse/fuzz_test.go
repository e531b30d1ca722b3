//go:build linux

package fuse

import (
	"bytes"
	"io"
	"sync"
	"testing"
)

// once is a device that has some requests and takes what is answered.
type once struct {
	requests [][]byte
	mu       sync.Mutex
	bad      []byte
}

func (o *once) Read(b []byte) (int, error) {
	if len(o.requests) == 0 {
		return 0, io.EOF
	}
	n := copy(b, o.requests[0])
	o.requests = o.requests[1:]
	return n, nil
}

func (o *once) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := message(b)
	if len(m) < replyHeader || int(m.u32(0)) != len(m) || int32(m.u32(4)) > 0 && (m.u64(8) != 0 || len(m) != 24) {
		o.bad = bytes.Clone(b)
	}
	return len(b), nil
}

func (*once) Close() error { return nil }

// FuzzRequest: whatever is asked, there is no panic, and a reply is one.
func FuzzRequest(f *testing.F) {
	for op := range opcode(53) {
		f.Add(uint32(op), uint64(rootID), append(make([]byte, op.need()), "note\x00"...))
		f.Add(uint32(op), uint64(rootID+1), make([]byte, op.need()))
		f.Add(uint32(op), uint64(rootID), []byte{})
	}
	f.Fuzz(func(t *testing.T, op uint32, node uint64, body []byte) {
		o := &once{requests: [][]byte{
			encode(opLookup, 2, rootID, "note\x00"),
			encode(opcode(op), 4, node, string(body)),
			body,
		}}
		root := &folder{list: []Entry{{"note", false}}, all: map[string]Node{"note": &note{closed: make(chan bool, 4)}}}
		s := newServer(o, root, user, user)
		s.serve()
		s.Wait()
		if o.bad != nil {
			t.Errorf("reply %x", o.bad)
		}
	})
}
