package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// Sites that are kept.
//
// Finding the sites of a program decodes all of its code, and mostly gives what it gave the last time. So the result can
// be kept, by somebody who knows that neither the image nor the options nor this package have changed since; the bytes
// have no version of their own for that reason. They end with a checksum, because a system that crashes can leave
// anything in a file, and a site that is wrong would have a program run into the middle of an instruction. What is in
// the image already, the bytes at the sites, is taken from there.
//
// Numbers are varints, addresses distances from the one before, so a site takes about 20 bytes and its name.

// errKept is returned for what AppendSites has not made.
var errKept = errors.New("not a list of sites")

// checksum is that at the end. The table is made when it is first wanted, not when a program that imports this starts.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// leastKept is fewer bytes than any site takes.
const leastKept = 15

// AppendSites appends sites of an image in the form that [ReadSites] reads. Sites of Go programs are not kept: their Moves
// are found more quickly than they are read.
func AppendSites(b []byte, sites []Site) []byte {
	start := len(b)
	b = binary.AppendUvarint(b, uint64(len(sites)))
	words := map[string]int{} // sources and reasons, which are few
	word := func(s string) {
		i, ok := words[s]
		if !ok {
			i = len(words)
			words[s] = i
		}
		if b = binary.AppendUvarint(b, uint64(i)); !ok {
			b = appendText(b, s)
		}
	}
	last := uint64(0)
	for i := range sites {
		s := &sites[i]
		b = binary.AppendVarint(b, int64(s.Func-last))
		last = s.Func
		b = binary.AppendUvarint(b, s.Size)
		b = appendText(b, s.Name)
		b = binary.AppendUvarint(b, uint64(len(s.Aliases)))
		for _, a := range s.Aliases {
			b = appendText(b, a)
		}
		b = binary.AppendVarint(b, int64(s.Addr-s.Func))
		b = binary.AppendUvarint(b, uint64(s.Len))
		b = binary.AppendUvarint(b, s.Via)
		b = binary.AppendUvarint(b, uint64(s.Moved))
		b = append(b, byte(s.Kind), byte(s.Ret))
		b = binary.AppendUvarint(b, uint64(s.Frame))
		b = binary.AppendUvarint(b, s.Slot)
		b = binary.AppendUvarint(b, uint64(len(s.Calls)))
		at := uint64(0)
		for _, c := range s.Calls {
			b = binary.AppendVarint(b, int64(c-at))
			at = c
		}
		b = append(b, flag(s.Catches)|flag(s.Own)<<1|flag(s.Untabled)<<2)
		word(s.Source)
		word(string(s.Reason))
	}
	return binary.LittleEndian.AppendUint32(b, checksum(b[start:]))
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// ReadSites returns the sites of an image that [AppendSites] has appended to nothing. It returns an error for other
// bytes, and for those of an image that does not have the sites' addresses; it does not find out whether they were made
// for this image.
func ReadSites(f *elfio.File, b []byte) ([]Site, error) {
	n := len(b) - crc32.Size
	if n < 0 || checksum(b[:n]) != binary.LittleEndian.Uint32(b[n:]) {
		return nil, errKept
	}
	r := keptReader{b: string(b[:n])}
	count := r.count(leastKept)
	sites := bigslice.Make[Site](0, count)
	var words []string
	word := func() string {
		i := r.number(uint64(len(words)))
		if i == uint64(len(words)) {
			words = append(words, r.text())
		}
		if r.bad {
			return ""
		}
		return words[i]
	}
	last := uint64(0)
	for range count {
		s := Site{Func: last + uint64(r.signed())}
		last = s.Func
		s.Size, s.Name = r.number(math.MaxUint64), r.text()
		if k := r.count(1); k > 0 {
			s.Aliases = make([]string, k)
			for i := range s.Aliases {
				s.Aliases[i] = r.text()
			}
		}
		s.Addr = s.Func + uint64(r.signed())
		s.Len = int(r.number(math.MaxInt32))
		s.Via = r.number(math.MaxUint64)
		s.Moved = int(r.number(math.MaxInt32))
		s.Kind, s.Ret = Kind(r.byte()), RetLoc(r.byte())
		s.Frame = uint32(r.number(math.MaxUint32))
		s.Slot = r.number(math.MaxUint64)
		if k := r.count(1); k > 0 {
			s.Calls = make([]uint64, k)
			at := uint64(0)
			for i := range s.Calls {
				at += uint64(r.signed())
				s.Calls[i] = at
			}
		}
		flags := r.byte()
		s.Catches, s.Own, s.Untabled = flags&1 != 0, flags&2 != 0, flags&4 != 0
		r.bad = r.bad || flags > 7
		s.Source, s.Reason = word(), Reason(word())
		if r.bad {
			return nil, errKept
		}
		if s.Len > 0 {
			var err error
			if s.Bytes, err = f.Bytes(s.Addr, s.Len); err != nil {
				return nil, err
			}
		}
		sites = append(sites, s)
	}
	if r.bad || r.b != "" {
		return nil, errKept
	}
	return sites, nil
}

// keptReader reads numbers and texts. What follows a malformed one is zero.
type keptReader struct {
	b   string
	bad bool
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
