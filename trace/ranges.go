package trace

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// Ids in events are unique in a trace, and an image has a range of them; what readers
// show is the image and the function's number in it. A task's calls are mostly of one
// image, or of two that call each other, so a decoder keeps the two ranges it has used
// last, and an id is a subtraction and a comparison: no more than it would take to
// tell an id from a record. All others are found by bisection. A table by id would be
// faster still, but could be made as large as ids are by a file of a few bytes.

// An idRange is the ids of an image.
type idRange struct {
	first, last uint32
	image       uint32 // position in Trace.Images
}

// idRanges are sorted by id and do not overlap.
type idRanges []idRange

// A span is ids from lo on, n of them, that belong to one image: the local id is the
// id minus base. The zero span has none.
type span struct {
	lo, n, base uint32
	image       uint32
}

// span returns the ids around id that belong to one image; none for what is no id, or
// nobody's. Where there are no ranges at all, ids are local ones of home.
func (r idRanges) span(id, home uint32) span {
	if id == 0 || id > format.IDMax {
		return span{}
	}
	i, _ := slices.BinarySearchFunc(r, id, func(r idRange, id uint32) int { return cmp.Compare(r.last, id) })
	if i < len(r) && r[i].first <= id {
		return span{r[i].first, r[i].last - r[i].first + 1, r[i].first - 1, r[i].image}
	}
	if len(r) > 0 {
		return span{}
	}
	return span{1, format.IDMax, 0, home}
}

// A MapEntry is an image in a map chunk: one that a process has loaded.
type MapEntry struct {
	First, Count     uint32 // its ids in events
	Image            ImageID
	Bias             uint64 // load address minus link address
	Loaded, Unloaded uint64 // ticks; Unloaded is 0 while it is loaded
}

// A Mapping is an image that a process had loaded.
type Mapping struct {
	PID              int
	Image            int    // position in Trace.Images
	Bias             uint64 // load address minus link address
	Loaded, Unloaded int64  // ns since the trace's start; Unloaded is 0 if it was not unloaded
	ticks            [2]uint64
}

// rangeLog collects ranges while the index is built.
type rangeLog struct {
	seen map[idRange]bool
	all  idRanges // as they came
	maps map[mapKey]int
}

// A mapKey is one registration of an image in a process.
type mapKey struct {
	pid, first uint32
	loaded     uint64
}

// readRanges reads the header's table.
func (ix *index) readRanges() error {
	t := ix.t
	h := &t.Header
	size := h.RangesRoom * format.RangeEntry
	if h.Ranges == 0 {
		return nil
	}
	if h.Ranges%8 != 0 || h.Ranges < format.StatesOff+4*h.Chunks || h.Ranges+size > h.Size {
		t.problem(fmt.Errorf("header offset %d: %d id ranges at offset %d do not fit into the header",
			format.HRanges, h.RangesRoom, h.Ranges))
		return nil
	}
	le := binary.LittleEndian
	return ix.parts(h.Ranges, h.Ranges+size, format.RangeEntry, func(b []byte) bool {
		count := le.Uint32(b[format.RCount:])
		if image := ImageID(le.Uint64(b[format.RImage:])); image != 0 && count != 0 {
			ix.addRange(le.Uint32(b[format.RFirst:]), count, image)
		}
		return count != 0
	})
}

// parts calls fn with the entries of the given size from off to end, or the end of
// the file, until it returns false.
func (ix *index) parts(off, end, entry int64, fn func(b []byte) bool) error {
	buf := make([]byte, min(end-off, 1024*entry))
	for off+entry <= end {
		n, err := ix.t.file.ReadAt(buf[:min(int64(len(buf)), end-off)], off)
		if err != nil && err != io.EOF {
			return err
		}
		n -= n % int(entry)
		if n == 0 {
			return nil
		}
		for b := buf[:n]; len(b) > 0; b = b[entry:] {
			if !fn(b[:entry]) {
				return nil
			}
		}
		off += int64(n)
	}
	return nil
}

// addRange enters a range, and returns the position of its image.
func (ix *index) addRange(first, count uint32, id ImageID) (image uint32) {
	image = ix.image(id)
	if count == 0 { // of which only system calls are recorded
		return image
	}
	r := idRange{first, first + count - 1, image}
	if ix.ranges.seen[r] {
		return image
	}
	if first == 0 || count > format.IDMax || r.last > format.IDMax {
		ix.t.problem(fmt.Errorf("image %v: %d ids from %#x on, but there are none above %#x", id, count, first, format.IDMax))
		return image
	}
	if ix.ranges.seen == nil {
		ix.ranges.seen = map[idRange]bool{}
	}
	ix.ranges.seen[r] = true
	ix.ranges.all = append(ix.ranges.all, r)
	if im := &ix.t.Images[image]; im.Sites == 0 {
		im.Sites = int(count)
	}
	return image
}

// addMap enters a map chunk.
func (ix *index) addMap(off int64, ch *chunkHead) error {
	t := ix.t
	le := binary.LittleEndian
	return ix.parts(off+ChunkHeaderSize, off+int64(ch.size), format.MapEntry, func(b []byte) bool {
		first, id := le.Uint32(b[format.MFirst:]), ImageID(le.Uint64(b[format.MImage:]))
		if id == 0 {
			return false // nothing was written from here on
		}
		image := ix.addRange(first, le.Uint32(b[format.MCount:]), id)
		loaded, unloaded := le.Uint64(b[format.MLoaded:]), le.Uint64(b[format.MUnloaded:])
		key := mapKey{ch.pid, first, loaded}
		i, ok := ix.ranges.maps[key]
		if !ok {
			if ix.ranges.maps == nil {
				ix.ranges.maps = map[mapKey]int{}
			}
			i = len(t.Mappings)
			ix.ranges.maps[key] = i
			t.Mappings = append(t.Mappings, Mapping{PID: int(ch.pid), Image: int(image), Bias: le.Uint64(b[format.MBias:])})
		}
		m := &t.Mappings[i]
		m.ticks = [2]uint64{loaded, max(m.ticks[1], unloaded)}
		return true
	})
}

// finishRanges sorts the ranges, and drops those that overlap others.
func (ix *index) finishRanges() {
	t := ix.t
	all := ix.ranges.all
	slices.SortStableFunc(all, func(a, b idRange) int { return cmp.Compare(a.first, b.first) })
	for _, r := range all {
		if n := len(t.ranges); n > 0 && r.first <= t.ranges[n-1].last {
			t.problem(fmt.Errorf("image %v: its ids from %#x to %#x are also those of image %v",
				t.Images[r.image].ID, r.first, r.last, t.Images[t.ranges[n-1].image].ID))
			continue
		}
		t.ranges = append(t.ranges, r)
	}
	slices.SortStableFunc(t.Mappings, func(a, b Mapping) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.ticks[0], b.ticks[0]))
	})
}

// setMappings gives the mappings their times.
func (t *Trace) setMappings() {
	for i := range t.Mappings {
		m := &t.Mappings[i]
		m.Loaded = t.Clock.Time(m.ticks[0])
		if m.ticks[1] != 0 {
			m.Unloaded = t.Clock.Time(m.ticks[1])
		}
	}
}
