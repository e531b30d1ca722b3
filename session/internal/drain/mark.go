//go:build linux

package drain

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// A Mark is how far everything has been written: the chunks in the pool, and the events file. The zero value is none.
type Mark struct {
	taken  bool
	size   int64    // of the events file
	chunks []marked // by number
}

// marked is how far a chunk has been written.
type marked struct {
	filled
	end int
}

// Move moves a mark to where everything has been written now, and tells whether that is another place. What comes while
// it looks may be behind the mark, and then moves the next one. It is to be called by Do.
func (d *Drainer) Move(m *Mark) (moved bool) {
	d.round(false)
	d.own(true)
	now := Mark{taken: true, size: d.w.size}
	for i := range d.chunks() {
		f, ok := d.see(i)
		if !ok {
			continue
		}
		chunk := d.p.Chunk(i)
		end := int(le.Uint32(chunk[format.CSize:]))
		if end == 0 { // its task is writing to it
			end = pool.WrittenTo(chunk, m.endOf(f))
		}
		now.chunks = append(now.chunks, marked{f, end})
	}
	moved = now.taken != m.taken || now.size != m.size || !slices.Equal(now.chunks, m.chunks)
	*m = now
	return moved
}

// endOf is how far a chunk had been written.
func (m *Mark) endOf(f filled) int {
	i, ok := slices.BinarySearchFunc(m.chunks, f.chunk, func(c marked, chunk int) int { return cmp.Compare(c.chunk, chunk) })
	if ok && m.chunks[i].filled == f {
		return m.chunks[i].end
	}
	return format.ChunkHeader
}
