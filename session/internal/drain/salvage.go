//go:build linux

package drain

import (
	"fmt"
	"io"
	"os"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

// What a recorder that was killed has left in the pool.
//
// It may have been killed at any moment: in the middle of writing chunks, or between writing and freeing them. So the file
// ends where its last whole chunk does, and what it has is not written again. A chunk that is being written to the file is
// the recorder's alone, and becomes a full one again; one that was being cleared has lost its magic number first.

// A Stored says which chunks a file has.
type Stored map[storedChunk]bool

// storedChunk is what tells a chunk apart, compressed or not.
type storedChunk struct {
	task    pool.Task
	number  uint32
	kind    trace.ChunkKind
	counter uint64
}

func storedOf(h *pool.Header) storedChunk {
	kind := h.Kind()
	if kind == format.KindCompressed {
		kind = trace.ChunkEvents
	}
	return storedChunk{h.Task(), le.Uint32(h[format.CNumber:]), kind, h.Counter()}
}

// Resume returns the events file that another process has written, to go on behind its last whole chunk, and what it has.
func Resume(f *os.File) (*File, Stored, error) {
	var head [format.HeaderSize]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || string(head[:len(format.FileMagic)]) != format.FileMagic {
		return nil, nil, fmt.Errorf("%s has not begun: %w", f.Name(), err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, nil, err
	}
	w := &File{f: f, size: format.HeaderSize, id: format.IdentityOf(head[:])}
	has := make(Stored)
	var h pool.Header
	for w.size+format.ChunkHeader <= size {
		if _, err := f.ReadAt(h[:], w.size); err != nil {
			return nil, nil, err
		}
		used := int64(le.Uint32(h[format.CSize:]))
		if le.Uint32(h[format.CMagic:]) != format.ChunkMagic || used < format.ChunkHeader || w.size+used > size {
			break
		}
		has[storedOf(&h)] = true
		w.size += used
	}
	if err := f.Truncate(w.size); err != nil {
		return nil, nil, err
	}
	_, err = f.Seek(w.size, io.SeekStart)
	return w, has, err
}

// Salvage has a pool whose recorder was killed as if it had not taken any chunks that it has not written. Last does the
// rest.
func (d *Drainer) Salvage(has Stored) {
	for i := range d.p.All {
		s := d.p.State(i)
		switch s.Load() {
		case format.StateWriting:
			s.Store(format.StateFull)
		case format.StateFull:
		default:
			continue
		}
		h := pool.HeaderOf(d.p.Chunk(i), int(le.Uint32(d.p.Chunk(i)[format.CSize:])))
		if pool.AtomicMagic(d.p.Chunk(i)) != format.ChunkMagic || has[storedOf(&h)] {
			d.p.Release(i, len(d.p.Chunk(i)))
		}
	}
}
