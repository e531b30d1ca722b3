package code

import (
	"encoding/binary"
	"math/bits"
)

// lastSuspect returns the offset behind the last bytes of b, which lies at addr, that can be the displacement of a
// branch into a place in it; 0 if there are none. The place itself is left out.
//
// All code of an image is read here, so eight bytes are looked at in a step. What seems to match is then looked at by
// itself.
func lastSuspect(b []byte, addr uint64, place Place) (last int) {
	lo, hi := place.first(), place.Hi
	n := hi - lo
	for _, part := range [2][2]uint64{{addr, place.Lo}, {hi, addr + uint64(len(b))}} {
		if part[1] <= part[0] {
			continue
		}
		p := b[part[0]-addr : part[1]-addr]
		s := suspects{p: p, at: part[0] - lo, n: n}
		switch {
		case part[0] < hi:
			s.near(max(1, len(p)-256), len(p))
			s.each(0, len(p)-4)
		case n <= maxSwept:
			s.near(1, min(len(p), 128+int(n)))
			s.far()
		default:
			s.near(1, min(len(p), 128+int(n)))
			s.each(0, len(p)-4)
		}
		if s.last > 0 {
			last = max(last, int(part[0]-addr)+s.last)
		}
	}
	return last
}

// suspects looks for displacements in code.
type suspects struct {
	p    []byte
	at   uint64 // distance from the first byte that counts to p, so that a target is inside when it is below n
	n    uint64
	last int // offset in p behind the last one found, 0 for none
}

// maxSwept is the largest place several bytes are compared at once for: the tests below take it to be small.
const maxSwept = 100

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// each looks at the displacements of four bytes from offset k to offset to.
func (s *suspects) each(k, to int) {
	for ; k <= to; k++ {
		d := uint64(int64(int32(binary.LittleEndian.Uint32(s.p[k:]))))
		if s.at+uint64(k)+4+d < s.n {
			s.last = max(s.last, k+4)
		}
	}
}

// far is each for all of p, which lies behind the place. A displacement back to it from a place x bytes behind its
// first byte is between -x and -x+n, so its upper half is one value for nearly 64 KiB of places.
func (s *suspects) far() {
	end := len(s.p) - 3 // no displacement begins there
	for k := 0; k < end; {
		x := s.at + uint64(k) + 4
		if x&0xffff <= s.n {
			s.each(k, k) // just behind a boundary the upper half can be that of both sides
			k++
			continue
		}
		// x goes up to the next multiple of 64 KiB.
		to := end
		if room := uint64(1<<16) - x&0xffff; uint64(to-k) > room {
			to = k + int(room)
		}
		s.upper(k, to, uint16((-x)>>16))
		k = to
	}
}

// upper looks at the displacements from offset k up to offset to, not included, whose upper half is h.
func (s *suspects) upper(k, to int, h uint16) {
	h2, h3 := uint64(h&0xff)*ones, uint64(h>>8)*ones
	p := s.p[:to+3]
	for ; k+16 <= to; k += 16 {
		q := p[k+2:]
		q = q[:17]
		a := (binary.LittleEndian.Uint64(q) ^ h2) | (binary.LittleEndian.Uint64(q[1:]) ^ h3)
		b := (binary.LittleEndian.Uint64(q[8:]) ^ h2) | (binary.LittleEndian.Uint64(q[9:]) ^ h3)
		// A byte is zero in a or b where both bytes are those of h. A byte above one that is zero can seem so too.
		a, b = (a-ones)&^a&highs, (b-ones)&^b&highs
		if a|b == 0 {
			continue
		}
		for ; a != 0; a &= a - 1 {
			i := k + bits.TrailingZeros64(a)/8
			s.each(i, i)
		}
		for ; b != 0; b &= b - 1 {
			i := k + 8 + bits.TrailingZeros64(b)/8
			s.each(i, i)
		}
	}
	s.each(k, to-1)
}

// near looks at the displacements of one byte from offset k up to offset to, not included. They reach 128 bytes back
// and 127 ahead.
func (s *suspects) near(k, to int) {
	const step = 0x0706050403020100
	if s.n <= maxSwept {
		p, n := s.p[:to], s.n*ones
		// The low bytes of where displacements of 0 at eight places lead to, relative to the first byte that counts. Bytes
		// are added without a carry between them.
		c := uint64(byte(s.at+uint64(k)+1)) * ones
		c = (c&^highs + step) ^ (c & highs)
		for ; k+8 <= len(p); k += 8 {
			d := binary.LittleEndian.Uint64(p[k:])
			v := (d&^highs + c&^highs) ^ ((d ^ c) & highs)
			c = (c&^highs + 8*ones) ^ (c & highs)
			// Less than n, perhaps also above such a byte.
			for m := (v - n) &^ v & highs; m != 0; m &= m - 1 {
				s.one(k + bits.TrailingZeros64(m)/8)
			}
		}
	}
	for ; k < to; k++ {
		s.one(k)
	}
}

// one looks at a displacement of one byte.
func (s *suspects) one(k int) {
	if s.at+uint64(k)+1+uint64(int64(int8(s.p[k]))) < s.n && isShortBranch(s.p[k-1]) {
		s.last = max(s.last, k+1)
	}
}
