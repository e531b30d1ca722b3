package trace

import (
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// Sparse files. A file of a few blocks can say that it has 8 TiB: a program that writes
// its own trace extends it ahead of what it uses, and anybody can make one of holes. A
// hole reads as zeros, which mean that nothing was written, so readers ask the file
// system for the next data instead of reading it. Then the time a file takes follows
// from its blocks, not from its size.

// nextData returns where data can begin at or behind off; end if there is none before.
// It is off itself where the file system does not tell.
func (t *Trace) nextData(off, end int64) int64 { return nextData(t.file, off, end) }

func nextData(r io.ReaderAt, off, end int64) int64 {
	s, ok := r.(io.Seeker)
	if !ok {
		return off
	}
	// Nobody reads by the file's own offset.
	switch at, err := s.Seek(off, unix.SEEK_DATA); {
	case errors.Is(err, unix.ENXIO):
		return end
	case err != nil || at < off:
		return off
	default:
		return min(at, end)
	}
}

// stateSize is the size of a slot's state in bytes.
const stateSize = 4

// A slotStates reads the table of the slots' states in a pool's header. A header may
// claim a billion slots, so the table is read through a window, and holes in it, which
// are free slots, are skipped.
type slotStates struct {
	t        *Trace
	n        int64 // slots whose states are in the file
	window   [8 << 10]byte
	from, to int64 // slots whose states are in the window
}

func newSlotStates(t *Trace) *slotStates {
	room := max(0, t.size-format.StatesOff) / stateSize
	return &slotStates{t: t, n: min(t.Header.Chunks+t.Header.Small, room)}
}

// used returns the first slot from i on that is not free; n or more if there is none.
func (s *slotStates) used(i int64) (int64, error) {
	for ; i < s.n; i++ {
		if i < s.from || i >= s.to {
			if err := s.fill(&i); err != nil || i >= s.n {
				return i, err
			}
		}
		if binary.LittleEndian.Uint32(s.window[stateSize*(i-s.from):]) != format.StateFree {
			break
		}
	}
	return i, nil
}

// fill moves the window to slot i, or to a later one if there is a hole.
func (s *slotStates) fill(i *int64) error {
	off := format.StatesOff + stateSize**i
	end := format.StatesOff + stateSize*s.n
	*i += (s.t.nextData(off, end) - off) / stateSize
	if *i >= s.n {
		return nil
	}
	s.from, s.to = *i, min(*i+int64(len(s.window))/stateSize, s.n)
	b := s.window[:stateSize*(s.to-s.from)]
	n, err := s.t.file.ReadAt(b, format.StatesOff+stateSize*s.from)
	clear(b[n:])
	if err == io.EOF {
		err = nil
	}
	return err
}
