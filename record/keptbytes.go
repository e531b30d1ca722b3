package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
)

// How sites and system calls are kept: numbers are varints, addresses distances from the one before, and a checksum is
// at the end.

// errKept is returned for what a keptWriter has not made.
var errKept = errors.New("not a list that was kept")

// checksum is that at the end. The table is made when it is first wanted, not when a program that imports this starts.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// keptWriter appends numbers and texts.
type keptWriter struct {
	b     []byte
	start int            // of what it has appended
	words map[string]int // texts that are written once, by their numbers
}

func (w *keptWriter) number(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *keptWriter) signed(v uint64) { w.b = binary.AppendVarint(w.b, int64(v)) }

func (w *keptWriter) text(s string) { w.b = append(binary.AppendUvarint(w.b, uint64(len(s))), s...) }

// word writes a text of which there are few, such as a reason.
func (w *keptWriter) word(s string) {
	i, ok := w.words[s]
	if !ok {
		i = len(w.words)
		w.words[s] = i
	}
	if w.number(uint64(i)); !ok {
		w.text(s)
	}
}

func (w *keptWriter) flags(flags ...bool) {
	b := byte(0)
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	w.b = append(w.b, b)
}

// end returns what was appended to, with the checksum.
func (w *keptWriter) end() []byte {
	return binary.LittleEndian.AppendUint32(w.b, checksum(w.b[w.start:]))
}

// keptReader reads numbers and texts. What follows a malformed one is zero.
type keptReader struct {
	b     string
	words []string
	bad   bool
}

// newKeptReader reads what a keptWriter has appended to nothing.
func newKeptReader(b []byte) (*keptReader, error) {
	n := len(b) - crc32.Size
	if n < 0 || checksum(b[:n]) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, errKept
	}
	return &keptReader{b: string(b[:n])}, nil
}

// end returns an error unless all was read, and was well-formed.
func (r *keptReader) end() error {
	if r.bad || r.b != "" {
		return errKept
	}
	return nil
}

func (r *keptReader) byte() byte {
	if r.b == "" {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

// number reads a number of at most limit.
func (r *keptReader) number(limit uint64) uint64 {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		c := r.byte()
		if shift == 63 && c > 1 {
			break
		}
		if v |= uint64(c&0x7f) << shift; c < 0x80 {
			r.bad = r.bad || v > limit
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *keptReader) signed() int64 {
	v := r.number(math.MaxUint64)
	return int64(v>>1) ^ -int64(v&1)
}

// count reads how many follow of what takes at least some bytes each.
func (r *keptReader) count(each int) int {
	n := r.number(math.MaxInt)
	if n > uint64(len(r.b)/each) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return int(n)
}

// text reads a string, which does not keep the others in memory.
func (r *keptReader) text() string {
	n := r.count(1)
	s := r.b[:n]
	r.b = r.b[n:]
	return strings.Clone(s)
}

// word reads a text of which there are few.
func (r *keptReader) word() string {
	i := r.number(uint64(len(r.words)))
	if i == uint64(len(r.words)) {
		r.words = append(r.words, r.text())
	}
	if r.bad {
		return ""
	}
	return r.words[i]
}

// flags reads a byte of flags.
func (r *keptReader) flags(to ...*bool) {
	b := r.byte()
	for i, f := range to {
		*f = b>>i&1 != 0
	}
	r.bad = r.bad || b>>len(to) != 0
}
