//go:build linux

package drain

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// File is the events file of a trace directory.
type File struct {
	f    *os.File
	size int64
	err  error // first error; nothing is written after it

	list    *os.File // nil: there is none, or it could not be written
	listed  int64    // its size
	id      format.Identity
	entries []byte // for list
}

// stored is a chunk as it is written: its header may be a copy.
type stored struct{ head, contents []byte }

func (c stored) size() int64 { return int64(len(c.head) + len(c.contents)) }

// NewFile returns an empty events file. The headers of its chunks are copied to list;
// nil: they are not.
func NewFile(f, list *os.File) *File { return &File{f: f, list: list} }

// Header writes the header, before the first chunk.
func (w *File) Header(head []byte) error {
	w.id = format.IdentityOf(head)
	_, err := w.write([]stored{{head: head}})
	return err
}

// append appends chunks to the file and to the list, and returns how many are kept.
//
// The list follows the file: an entry is written when its chunk is, so that the list
// of a recorder that was killed tells of no chunk that is not there. It is for speed
// only. An error ends the list, with a whole entry, and nothing else.
func (w *File) append(chunks []stored) (kept int, err error) {
	at := w.size
	kept, err = w.write(chunks)
	if w.list == nil {
		return kept, err
	}
	w.entries = w.entries[:0]
	for _, c := range chunks[:kept] {
		w.entries = format.AppendIndex(w.entries, w.id, c.head, at)
		at += c.size()
	}
	n, lerr := w.list.Write(w.entries)
	w.listed += int64(n)
	if lerr != nil {
		_ = w.list.Truncate(w.listed / format.ChunkHeader * format.ChunkHeader)
		w.close()
	}
	return kept, err
}

// close ends the list.
func (w *File) close() {
	if w.list != nil {
		w.list.Close()
		w.list = nil
	}
}

// write appends whole chunks and returns how many are kept. After an error the
// file ends with the last whole chunk, and later calls fail at once.
func (w *File) write(chunks []stored) (kept int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	total := int64(0)
	rest := make([][]byte, 0, 2*len(chunks)) // what is written is cut off the front
	for _, c := range chunks {
		total += c.size()
		rest = append(rest, c.head, c.contents)
	}
	done := int64(0)
	for len(rest) > 0 {
		n, err := unix.Writev(int(w.f.Fd()), rest)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return w.fail(fmt.Errorf("%s: %w", w.f.Name(), err), chunks, done), w.err
		}
		done += int64(n)
		for len(rest) > 0 && n >= len(rest[0]) {
			n -= len(rest[0])
			rest = rest[1:]
		}
		if len(rest) > 0 {
			rest[0] = rest[0][n:]
		}
	}
	w.size += total
	return len(chunks), nil
}

// fail keeps the chunks that were written as a whole, cuts off the rest, and
// returns how many were kept.
func (w *File) fail(err error, chunks []stored, done int64) (kept int) {
	w.err = err
	for _, c := range chunks {
		if c.size() > done {
			break
		}
		done -= c.size()
		w.size += c.size()
		kept++
	}
	if terr := w.f.Truncate(w.size); terr != nil {
		w.err = errors.Join(err, terr)
	}
	return kept
}
