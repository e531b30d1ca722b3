package trace

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
)

// What the sections of the index are made of: numbers, functions, calls and frames, as
// they are appended and as they are read. A reader believes none of them: counts are
// bounded by what is left of the section, and behind its end everything is 0.

// storedFlags are the flags of a frame that are not its sink's.
const storedFlags = frameInherited | frameSuspended | frameOuter

// storedDepth is beside them: the frame's depth follows.
const storedDepth = byte(frameInside)

// A numbering is what the index calls the first of Trace.Images; the others follow it.
type numbering uint32

func (n numbering) appendFn(b []byte, fn FuncID) []byte {
	image := uint64(fn.Image)
	if image != SyscallImage { // which has that number in every index
		image += uint64(n)
	}
	b = binary.AppendUvarint(b, image)
	return binary.AppendUvarint(b, uint64(fn.ID))
}

// noFunc comes before the first function of a list.
var noFunc = FuncID{Image: math.MaxUint32}

func (f FuncID) compare(g FuncID) int {
	return cmp.Or(cmp.Compare(f.Image, g.Image), cmp.Compare(f.ID, g.ID))
}

// appendNext appends the function that follows another one in a sorted list, and in the lowest bits of its number what
// is in flags, which has bit 0 free and is below 1<<bits.
func (n numbering) appendNext(b []byte, fn, last FuncID, flags uint64, bits int) []byte {
	if fn.Image == last.Image && fn.ID > last.ID {
		return binary.AppendUvarint(b, uint64(fn.ID-last.ID)<<bits|flags)
	}
	return n.appendFn(binary.AppendUvarint(b, 1|flags), fn)
}

func (n numbering) appendFrame(b []byte, f *frame, last uint64) []byte {
	b = n.appendFn(b, f.fn)
	b = binary.AppendVarint(b, int64(f.start-last))
	b = binary.AppendUvarint(b, f.self)
	flags := byte(f.flags & storedFlags)
	if f.depth == 0 {
		return append(b, flags)
	}
	return binary.AppendUvarint(append(b, flags|storedDepth), uint64(f.depth))
}

func (n numbering) appendCalls(b []byte, calls []openCall) []byte {
	b = binary.AppendUvarint(b, uint64(len(calls)))
	last := uint64(0)
	for _, c := range calls {
		b = n.appendFn(b, c.fn)
		b = binary.AppendVarint(b, int64(c.start-last))
		last = c.start
	}
	return b
}

// minFrame and minCall are the least bytes that a frame and a call take, which bound
// how many there can be in what is left of a section.
const (
	minFrame = 5
	minCall  = 3
)

// A fields reads the numbers of a section. After what is not there everything is 0.
type fields struct {
	b      []byte
	images []uint32 // the positions in Trace.Images of the images that the index numbers
	bad    bool
}

func (p *fields) uint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.b, p.bad = nil, true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *fields) int() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.b, p.bad = nil, true
		return 0
	}
	p.b = p.b[n:]
	return v
}

// count is a number of things of the given least size that follow.
func (p *fields) count(size int) int {
	v := p.uint()
	if v > uint64(len(p.b)/size) {
		p.b, p.bad = nil, true
		return 0
	}
	return int(v)
}

// bytes returns the next n bytes.
func (p *fields) bytes(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.b, p.bad = nil, true
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

func (p *fields) byte() byte {
	if v := p.bytes(1); v != nil {
		return v[0]
	}
	return 0
}

func (p *fields) fn() FuncID {
	image, id := p.uint(), p.uint()
	if image == SyscallImage && bits.Len64(id) <= 32 {
		return FuncID{SyscallImage, uint32(id)}
	}
	if image >= uint64(len(p.images)) || bits.Len64(id) > 32 {
		p.bad = true
		return FuncID{}
	}
	return FuncID{p.images[image], uint32(id)}
}

// next makes fn the function that follows it in a sorted list, and returns the flags beside it.
func (p *fields) next(fn *FuncID, bits int) (flags uint64) {
	v := p.uint()
	if v&1 != 0 {
		*fn = p.fn()
	} else {
		fn.ID += uint32(v >> bits)
	}
	return v & (1<<bits - 2)
}

func (p *fields) frame(last uint64) (f frame) {
	f.fn = p.fn()
	f.start = last + uint64(p.int())
	f.self = p.uint()
	flags := p.byte()
	if f.flags = frameFlags(flags) & storedFlags; flags&storedDepth != 0 {
		f.depth = uint32(p.uint())
	}
	return f
}

func (p *fields) calls() []openCall {
	calls := make([]openCall, p.count(minCall))
	last := uint64(0)
	for i := range calls {
		fn := p.fn()
		last += uint64(p.int())
		calls[i] = openCall{fn, last}
	}
	return calls
}
