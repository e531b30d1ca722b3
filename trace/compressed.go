package trace

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fentry-dev/fentry/internal/columns"
	"github.com/fentry-dev/fentry/internal/format"
)

// Compressed chunks. Whoever reads events does so by the offset of a chunk and through a
// window of any size, from walks of thousands of tasks to the index, which begins in the
// middle. None of them is to know of compression. So a compressed chunk has a second
// offset, behind all that a file can have, where it can be read as the chunk of events that
// it stands for: an address, from which the chunk and the byte in it follow.
//
// A window as large as a chunk, as one has who follows few tasks, is decoded into at once.
// Chunks of which more than the beginning is read in smaller parts are kept until others need
// the room: keptChunks bytes, however many tasks there are. With more tasks than that, each
// part is decoded anew: this takes time, not memory. A compressed chunk has some 160 bytes or
// more, and stands for 64 KiB at most, so what a file can make readers do is bounded by its size.
//
// A chunk that cannot be decoded reads as one that is cut off, which is as good as missing.

const (
	// plainBase is the first of the second offsets. Below it are those of the file, as far as chunks can be compressed.
	plainBase = 1 << 62
	// plainShift is how many bits of a second offset are for the byte, which may be that behind the last one.
	plainShift = 17
	// maxCompressed is where compressed chunks have to begin below.
	maxCompressed = 1 << (62 - plainShift + 3)
	// keptChunks is how many bytes of decoded chunks are kept.
	keptChunks = 64 << 20
)

// plainOffset returns the second offset of the chunk at an offset of the file, a multiple of 8.
func plainOffset(off int64) int64 { return plainBase | off>>3<<plainShift }

// fileOffset returns the offset in the file of a chunk that has been given either.
func fileOffset(off int64) int64 {
	if off < plainBase {
		return off
	}
	return off &^ plainBase >> plainShift << 3
}

// events returns the chunk of events that a compressed one stands for. An error says why it stands for none.
func (ch *chunkHead) events(h *Header, off int64) (*chunkHead, int64, error) {
	switch {
	case h.Layout != LayoutPacked || ch.unsealed:
		return nil, 0, errors.New("a compressed chunk in a slot")
	case off >= maxCompressed:
		return nil, 0, errors.New("a compressed chunk that far behind is not read")
	case !ch.plainFits() || int64(ch.plain) > h.ChunkSize:
		return nil, 0, fmt.Errorf("a compressed chunk of %d bytes, where one has at most %d", ch.plain,
			min(h.ChunkSize, format.MostPlain))
	}
	plain := *ch
	plain.kind, plain.size = ChunkEvents, ch.plain
	return &plain, plainOffset(off), nil
}

// plainFits tells whether the size that the chunk has when it is decoded is one that there can be.
func (ch *chunkHead) plainFits() bool {
	return ch.plain >= ChunkHeaderSize && ch.plain%8 == 0 && ch.plain <= format.MostPlain
}

// A plainFile reads a file of events at either offset. It is safe for concurrent use.
type plainFile struct {
	file     io.ReaderAt
	decoders sync.Pool // of *chunkDecoder

	mu    sync.Mutex
	kept  map[int64]*list.Element // by offset in the file
	order list.List               // of *keptChunk, the one that was read last in front
	bytes int
}

// A keptChunk is a decoded one.
type keptChunk struct {
	off   int64
	bytes []byte
}

// A chunkDecoder decodes one chunk at a time.
type chunkDecoder struct {
	*columns.Decoder
	stored []byte
	plain  [format.MostPlain]byte // where only a part is wanted
}

// Seek is what files of holes need. Compressed chunks have none.
func (p *plainFile) Seek(off int64, whence int) (int64, error) {
	if s, ok := p.file.(io.Seeker); ok && off < plainBase {
		return s.Seek(off, whence)
	}
	return 0, errors.ErrUnsupported
}

func (p *plainFile) ReadAt(b []byte, off int64) (int, error) {
	if off < plainBase {
		return p.file.ReadAt(b, off)
	}
	chunk, at := fileOffset(off), int(off&(1<<plainShift-1))
	if at == 0 {
		return p.beginning(b, chunk)
	}
	plain, err := p.keep(chunk)
	if err != nil {
		return 0, err
	}
	n := copy(b, plain[min(at, len(plain)):])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// beginning reads a chunk into b, all of it or the first part.
func (p *plainFile) beginning(b []byte, off int64) (int, error) {
	d, err := p.decoder()
	if err != nil {
		return 0, err
	}
	defer p.decoders.Put(d)
	size, err := d.head(p.file, off)
	if err != nil {
		return 0, err
	}
	if size > len(b) {
		if err := d.decode(d.plain[:size], p.file, off); err != nil {
			return 0, err
		}
		return copy(b, d.plain[:size]), nil
	}
	if err := d.decode(b[:size], p.file, off); err != nil {
		return 0, err
	}
	if size < len(b) {
		return size, io.EOF
	}
	return size, nil
}

// keep returns a decoded chunk, which it keeps.
func (p *plainFile) keep(off int64) ([]byte, error) {
	p.mu.Lock()
	if e := p.kept[off]; e != nil {
		p.order.MoveToFront(e)
		p.mu.Unlock()
		return e.Value.(*keptChunk).bytes, nil
	}
	p.mu.Unlock()
	d, err := p.decoder()
	if err != nil {
		return nil, err
	}
	defer p.decoders.Put(d)
	size, err := d.head(p.file, off)
	if err != nil {
		return nil, err
	}
	plain := make([]byte, size)
	if err := d.decode(plain, p.file, off); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept[off] == nil { // nobody else has been faster
		if p.kept == nil {
			p.kept = map[int64]*list.Element{}
		}
		p.kept[off] = p.order.PushFront(&keptChunk{off, plain})
		p.bytes += len(plain)
	}
	for p.bytes > keptChunks && p.order.Len() > 1 {
		c := p.order.Remove(p.order.Back()).(*keptChunk)
		delete(p.kept, c.off)
		p.bytes -= len(c.bytes)
	}
	return plain, nil
}

func (p *plainFile) decoder() (*chunkDecoder, error) {
	if d, ok := p.decoders.Get().(*chunkDecoder); ok {
		return d, nil
	}
	d, err := columns.NewDecoder()
	if err != nil {
		return nil, err
	}
	return &chunkDecoder{Decoder: d}, nil
}

// head reads the header of a compressed chunk, and returns the size that it has decoded.
func (d *chunkDecoder) head(r io.ReaderAt, off int64) (size int, err error) {
	d.stored = append(d.stored[:0], make([]byte, ChunkHeaderSize)...)
	if n, err := r.ReadAt(d.stored, off); n < ChunkHeaderSize {
		return 0, err
	}
	var ch chunkHead
	if !parseChunkHead(d.stored, &ch) || ch.kind != ChunkCompressed || ch.size < ChunkHeaderSize || ch.size > ch.plain ||
		!ch.plainFits() {
		return 0, io.EOF // no longer what it was, or what the file chunks says
	}
	return int(ch.plain), nil
}

// decode decodes the chunk whose header was read into b, which has its size.
func (d *chunkDecoder) decode(b []byte, r io.ReaderAt, off int64) error {
	le := binary.LittleEndian
	size := int(le.Uint32(d.stored[format.CSize:]))
	if n := size - len(d.stored); n > 0 {
		d.stored = append(d.stored, make([]byte, n)...)
	}
	n, err := r.ReadAt(d.stored[ChunkHeaderSize:], off+ChunkHeaderSize)
	if err != nil && err != io.EOF {
		return err
	}
	copy(b, d.stored[:ChunkHeaderSize])
	le.PutUint16(b[format.CKind:], format.KindEvents)
	le.PutUint32(b[format.CSize:], uint32(len(b)))
	le.PutUint32(b[format.CPlain:], 0)
	contents := d.stored[ChunkHeaderSize:][:n]
	if d.Decode(b[ChunkHeaderSize:], contents, le.Uint64(b[format.CCounter:])) != nil {
		return io.EOF
	}
	return nil
}
