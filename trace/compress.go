package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/columns"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/internal/safefile"
)

// A Shrunk is what Compress has done.
type Shrunk struct {
	Before, After int64 // size of the file events in bytes
	Chunks        int   // that were compressed
}

// atOnce is how many chunks of the usual size are read before they are compressed, and workers at most are kept.
const atOnce = 256

// Compress replaces the file events of a trace by one that says the same with its chunks compressed, in one step: owner
// and permissions stay. Each chunk is decoded again, and left as it is if that gives anything else; so are those that are
// compressed already. From damage on, the file is copied as it is. The files chunks and index, which say where chunks
// are, are removed before; chunks is written anew, and the index is made by the reader that wants one. The trace must have been recorded by "fentry record", and that must
// have ended.
func Compress(dir string) (s Shrunk, err error) {
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return s, err
	}
	defer d.Close()
	f, err := d.Open(EventsFile)
	if err != nil {
		return s, err
	}
	defer f.Close()
	// As long as it is locked, nobody moves the directory away to record another trace, or still writes this one.
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return s, fmt.Errorf("%s: is being recorded", dir)
	}
	c := compressor{file: f}
	if err := c.begin(); err != nil {
		return s, fmt.Errorf("%s: %w", dir, err)
	}
	for _, name := range []string{IndexFile, ChunksFile} {
		if err := d.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
	}
	// The new file is locked before it has its name, until there is a list of its chunks.
	lock := -1
	defer func() { unix.Close(lock) }()
	if err := atomicfile.WriteIn(d, EventsFile, atomicfile.Options{}, func(w *os.File) (err error) {
		if lock, err = unix.FcntlInt(w.Fd(), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
		_ = unix.Flock(lock, unix.LOCK_EX) // some file systems have no locks
		return c.write(w)
	}); err != nil {
		return s, err
	}
	// Without it, a large trace takes longer to open.
	err = atomicfile.WriteIn(d, ChunksFile, atomicfile.Options{LikeFile: f}, func(w *os.File) error {
		_, err := w.Write(c.list)
		return err
	})
	return Shrunk{c.size, c.written, c.chunks}, err
}

// A compressor compresses a file of events.
type compressor struct {
	file *os.File
	size int64
	head []byte
	id   format.Identity

	w       io.Writer
	written int64
	chunks  int
	list    []byte // the file chunks
	workers chan *chunkWorker
}

// A chunkWorker compresses one chunk at a time.
type chunkWorker struct {
	*columns.Encoder
	*columns.Decoder
	plain []byte
}

// begin reads the header.
func (c *compressor) begin() error {
	fi, err := c.file.Stat()
	if err != nil {
		return err
	}
	c.size = fi.Size()
	c.head = make([]byte, min(c.size, format.HeaderSize))
	if _, err := c.file.ReadAt(c.head, 0); err != nil {
		return err
	}
	h, err := ParseHeader(c.head)
	switch {
	case err != nil:
		return err
	case h.Layout != LayoutPacked:
		return errors.New("the program has written the trace itself, into places of a fixed size: it cannot be compressed")
	}
	c.head = make([]byte, h.Size)
	_, err = c.file.ReadAt(c.head, 0)
	c.id = format.IdentityOf(c.head)
	return err
}

func (c *compressor) write(w *os.File) error {
	c.w, c.workers = w, make(chan *chunkWorker, atOnce)
	off := int64(len(c.head))
	if err := c.put(c.head); err != nil {
		return err
	}
	for {
		batch, err := c.read(off)
		if err != nil {
			return err
		}
		if len(batch) == 0 { // the end, or damage
			break
		}
		for _, b := range batch {
			off += int64(len(b))
		}
		if err := c.batch(batch); err != nil {
			return err
		}
	}
	n, err := io.Copy(w, io.NewSectionReader(c.file, off, c.size-off))
	c.written += n
	return err
}

// read reads the chunks that begin at an offset. It returns none where there is no whole chunk any more.
func (c *compressor) read(off int64) (batch [][]byte, err error) {
	var head [ChunkHeaderSize]byte
	var ch chunkHead
	for begin := off; off-begin < atOnce<<16 && off+ChunkHeaderSize <= c.size; {
		if _, err := c.file.ReadAt(head[:], off); err != nil {
			return nil, err
		}
		if !parseChunkHead(head[:], &ch) || ch.size == 0 || ch.size > maxChunkSize || off+int64(ch.size) > c.size {
			break
		}
		b := make([]byte, ch.size)
		if _, err := c.file.ReadAt(b, off); err != nil {
			return nil, err
		}
		batch = append(batch, b)
		off += int64(len(b))
	}
	return batch, nil
}

// batch writes chunks, compressed where that helps.
func (c *compressor) batch(chunks [][]byte) error {
	small := make([][]byte, len(chunks))
	parallel.Do(len(chunks), func(i int) { small[i] = c.compress(chunks[i]) })
	for i, b := range chunks {
		if small[i] != nil {
			b = small[i]
			c.chunks++
		}
		c.list = format.AppendIndex(c.list, c.id, b[:ChunkHeaderSize], c.written)
		if err := c.put(b); err != nil {
			return err
		}
	}
	return nil
}

// compress returns a chunk of events compressed; nil: it is to stay as it is.
func (c *compressor) compress(chunk []byte) []byte {
	var ch chunkHead
	if !parseChunkHead(chunk, &ch) || ch.kind != ChunkEvents || len(chunk) > format.MostPlain {
		return nil
	}
	var w *chunkWorker
	select {
	case w = <-c.workers:
	default:
		e, err := columns.NewEncoder()
		if err != nil {
			return nil
		}
		d, err := columns.NewDecoder()
		if err != nil {
			return nil
		}
		w = &chunkWorker{Encoder: e, Decoder: d}
	}
	defer func() {
		select {
		case c.workers <- w:
		default:
		}
	}()
	head, words := chunk[:ChunkHeaderSize], chunk[ChunkHeaderSize:]
	b, ok := w.Chunk(nil, head, words)
	if !ok {
		return nil
	}
	w.plain = append(w.plain[:0], words...)
	clear(w.plain)
	err := w.Decode(w.plain, b[ChunkHeaderSize:], binary.LittleEndian.Uint64(head[format.CCounter:]))
	if err != nil || !bytes.Equal(w.plain, words) {
		return nil
	}
	return b
}

func (c *compressor) put(b []byte) error {
	n, err := c.w.Write(b)
	c.written += int64(n)
	return err
}
