//go:build linux

package fuse

import (
	"bytes"
	"encoding/binary"
	"syscall"
)

// What linux/fuse.h says of messages: numbers, and where their fields are. They are in the machine's byte order.

// The version that is spoken, and the oldest of it whose messages are those below.
const (
	major    = 7
	minor    = 31
	minorMin = 23
)

// opcode is what is asked for.
type opcode uint32

const (
	opLookup      opcode = 1
	opForget      opcode = 2
	opGetattr     opcode = 3
	opSetattr     opcode = 4
	opSymlink     opcode = 6
	opMknod       opcode = 8
	opMkdir       opcode = 9
	opUnlink      opcode = 10
	opRmdir       opcode = 11
	opRename      opcode = 12
	opLink        opcode = 13
	opOpen        opcode = 14
	opRead        opcode = 15
	opWrite       opcode = 16
	opStatfs      opcode = 17
	opRelease     opcode = 18
	opFlush       opcode = 25
	opInit        opcode = 26
	opOpendir     opcode = 27
	opReaddir     opcode = 28
	opReleasedir  opcode = 29
	opAccess      opcode = 34
	opCreate      opcode = 35
	opInterrupt   opcode = 36
	opDestroy     opcode = 38
	opPoll        opcode = 40
	opBatchForget opcode = 42
	opRename2     opcode = 45
)

// need is how long what follows the header of a request is at least.
func (op opcode) need() int {
	switch op {
	case opForget, opInterrupt, opBatchForget, opAccess, opOpen, opOpendir, opMkdir:
		return 8
	case opGetattr, opInit:
		return 16
	case opRelease, opReleasedir, opFlush, opPoll:
		return 24
	case opRead, opReaddir, opWrite:
		return 40
	case opSetattr:
		return 88
	}
	return 0
}

// Flags.
const (
	initAtomicTrunc = 1 << 3 // opens have O_TRUNC
	initBigWrites   = 1 << 5 // a write can be longer than a page
	initParallelDir = 1 << 18

	setSize   = 1 << 3 // of setattr: the size is to be set,
	setHandle = 1 << 6 // of what is open

	openDirect = 1 << 0 // without the page cache
	openStream = 1 << 2 // without offsets

	pollNotify = 1 << 0 // somebody waits
)

// notifyPoll is the code of a message that answers nothing: it is worth to poll again.
const notifyPoll = 1

// Lengths.
const (
	requestHeader = 40
	replyHeader   = 16
	mostData      = 128 << 10 // of a read or write
	mostRequest   = mostData + 4096
)

// request is what the kernel asks.
type request struct {
	op     opcode
	unique uint64 // its id
	node   uint64
	uid    uint32
	pid    uint32
	body   message
}

// parse reads a request. If its header is there and the rest is not as long as it has to be, the error is EINVAL, which
// can be answered.
func parse(b []byte) (*request, error) {
	m := message(b)
	if len(m) < requestHeader {
		return nil, syscall.EBADMSG
	}
	r := &request{op: opcode(m.u32(4)), unique: m.u64(8), node: m.u64(16), uid: m.u32(24), pid: m.u32(32)}
	r.body = m[requestHeader:]
	if int64(m.u32(0)) != int64(len(m)) || len(r.body) < r.op.need() {
		return r, syscall.EINVAL
	}
	return r, nil
}

// message has fields at offsets. Who reads one has checked that it is there.
type message []byte

func (m message) u32(at int) uint32 { return binary.NativeEndian.Uint32(m[at:]) }
func (m message) u64(at int) uint64 { return binary.NativeEndian.Uint64(m[at:]) }

// name is a string that ends with 0, from an offset on.
func (m message) name(at int) (string, error) {
	if name, _, ok := bytes.Cut(m[at:], []byte{0}); ok && len(name) > 0 {
		return string(name), nil
	}
	return "", syscall.EINVAL
}

// reply appends the fields of what is answered.
type reply []byte

func (r reply) u16(v uint16) reply { return binary.NativeEndian.AppendUint16(r, v) }
func (r reply) u32(v uint32) reply { return binary.NativeEndian.AppendUint32(r, v) }
func (r reply) u64(v uint64) reply { return binary.NativeEndian.AppendUint64(r, v) }
func (r reply) zeros(n int) reply  { return append(r, make([]byte, n)...) }

// newReply is a reply that does not say yet to what it is one.
func newReply(size int) reply { return make(reply, replyHeader, replyHeader+size) }

// finish fills the header in.
func (r reply) finish(unique uint64, e syscall.Errno) []byte {
	if len(r) < replyHeader || e != 0 {
		r = newReply(0)
	}
	binary.NativeEndian.PutUint32(r, uint32(len(r)))
	binary.NativeEndian.PutUint32(r[4:], uint32(-int32(e)))
	binary.NativeEndian.PutUint64(r[8:], unique)
	return r
}

// notification is a message of the server's own.
func (r reply) notification(code uint32) []byte {
	binary.NativeEndian.PutUint32(r, uint32(len(r)))
	binary.NativeEndian.PutUint32(r[4:], code)
	return r
}
