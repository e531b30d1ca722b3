package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
)

// A recorder writes the file chunks beside events: a copy of each chunk's header and
// where the chunk is. Opening a trace of 64 GB means a million headers; in events each
// of them is on a page of its own, there they are 128 MB one behind the other.
//
// The file is never needed, and never trusted further than it can be checked: an entry
// has a checksum that is also of the trace's identity, and must go on where the one
// before ends. From the first entry that does not, events is read as without it. That
// leaves a file whose entries are right and whose events have changed since: the
// decoder compares the header of each chunk that it reads.

// openChunks opens the file chunks of a trace; nil: there is none that can be read.
func (t *Trace) openChunks(d *safefile.Dir) *os.File {
	f, err := d.Open(ChunksFile)
	if err == nil {
		return f
	}
	if !missing(err) {
		t.problem(fmt.Errorf("not used: %w", err))
	}
	return nil
}

// listed enters the chunks that the file chunks has, and returns where the first one
// is that it does not have.
func (ix *index) listed(r io.Reader, id format.Identity) (end int64, err error) {
	end, _, err = ix.list(bufio.NewReaderSize(r, 1<<20), id, ix.t.Header.Size, ix.add)
	return end, err
}

// list gives the n chunks that r lists, the first of which is at off, to add, and returns
// where the next one is.
func (ix *index) list(r io.Reader, id format.Identity, off int64, add func(int64, *chunkHead) error) (end int64, n int, err error) {
	t := ix.t
	var e [ChunkHeaderSize]byte
	var ch chunkHead
	for ; ; n++ {
		if _, err := io.ReadFull(r, e[:]); err != nil {
			if err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.problem(fmt.Errorf("%s: %w", ChunksFile, err))
			}
			return off, n, nil // its recorder was killed, or is about to write more
		}
		at, ok := format.IndexOffset(id, e[:])
		switch {
		case !ok:
			t.problem(fmt.Errorf("%s: entry %d is damaged or another trace's; searching %s for the rest",
				ChunksFile, n, EventsFile))
			return off, n, nil
		case at != uint64(off) || !parseChunkHead(e[:], &ch) || ch.size == 0:
			t.problem(fmt.Errorf("%s: entry %d is not of the chunk at offset %#x; searching %s for the rest",
				ChunksFile, n, off, EventsFile))
			return off, n, nil
		case off+int64(ch.size) > t.size:
			return off, n, nil // events was cut off
		}
		if err := add(off, &ch); err != nil {
			return 0, n, err
		}
		off += int64(ch.size)
	}
}
