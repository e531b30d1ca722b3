package tracee

import (
	"bytes"

	"github.com/fentry-dev/fentry/internal/format"
)

// Switching functions, of which there can be 200,000: eight at a time, as a byte says all about one.

// A flip is what becomes of functions' switches.
type flip struct {
	armed uint32
	clear byte                 // reasons to be off that hold no more
	on    func(id uint32) bool // which are to be on, by local id; nil: all
}

const (
	switchGap = 64 // bytes that stay as they are, between two that are written together
	ones      = 0x0101010101010101
	offBits   = format.SwitchFiltered | format.SwitchCostly
	actsShift = 3 // from format.SwitchActs to format.SwitchOn
)

// eight is what becomes of eight switches, but for what on says.
func (f *flip) eight(w uint64) uint64 {
	w &^= uint64(f.clear|format.SwitchOn) * ones
	// No byte with these bits is above 0x80, so no sum comes to the next one.
	on := ^((w&(offBits*ones) + 0x7f*ones) >> 7) & ones
	switch f.armed {
	case format.ArmedOn:
	case format.ArmedPaused:
		on &= w >> actsShift
	default:
		on = 0
	}
	return w | on
}

// one is what becomes of a function's switch.
func (f *flip) one(b byte, id uint32) byte {
	if f.on != nil && !f.on(id) {
		return b&^(format.SwitchOn|f.clear&format.SwitchFiltered) | format.SwitchFiltered
	}
	return byte(f.eight(uint64(b)))
}

// A stretch is switches that are all alike, as those of most functions are: they are looked at as fast as they are copied.
type stretch struct {
	was, now uint64 // of eight
	again    int    // how often these have come in a row
	from, to [switchStretch]byte
	is       bool // from and to are these
}

const (
	switchStretch = 512
	manyAlike     = 32 // eights in a row, from which on it pays
)

// follow is told of eight switches, and what becomes of them.
func (s *stretch) follow(was, now uint64) {
	if was != s.was || now != s.now || s.again == 0 {
		s.was, s.now, s.again, s.is = was, now, 0, false
	}
	if s.again++; s.again < manyAlike || s.is {
		return
	}
	for i := 0; i < switchStretch; i += 8 {
		le.PutUint64(s.from[i:], was)
		le.PutUint64(s.to[i:], now)
	}
	s.is = true
}

// turn switches functions at the beginning of b that are like those before. It returns how many.
func (s *stretch) turn(b []byte) (n int) {
	for s.is && len(b)-n >= switchStretch && bytes.Equal(b[n:n+switchStretch], s.from[:]) {
		n += copy(b[n:], s.to[:])
	}
	return n
}

// all switches functions, the first of which has an id, in place, and has what changes written, in few pieces.
func (f *flip) all(b []byte, id uint32, write func(begin, end int) error) error {
	begin, end := -1, 0 // of what is to be written
	changed := func(from, to int) (err error) {
		if begin >= 0 && from-end > switchGap {
			err = write(begin, end)
			begin = -1
		}
		if begin < 0 {
			begin = from
		}
		end = to
		return err
	}
	i := 0
	var alike stretch
	for ; f.on == nil && i+8 <= len(b); i += 8 {
		if n := alike.turn(b[i:]); n > 0 {
			if alike.now != alike.was {
				if err := changed(i, i+n); err != nil {
					return err
				}
			}
			i += n - 8
			continue
		}
		was := le.Uint64(b[i:])
		now := f.eight(was)
		alike.follow(was, now)
		if now == was {
			continue
		}
		le.PutUint64(b[i:], now)
		if begin >= 0 && i == end {
			end = i + 8
		} else if err := changed(i, i+8); err != nil {
			return err
		}
	}
	for ; i < len(b); i++ {
		now := f.one(b[i], id+uint32(i))
		if now == b[i] {
			continue
		}
		b[i] = now
		if err := changed(i, i+1); err != nil {
			return err
		}
	}
	if begin < 0 {
		return nil
	}
	return write(begin, end)
}
