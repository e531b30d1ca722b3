package tracedat

import (
	"bufio"
	"encoding/binary"
	"io"
)

// The file has all pages of one processor behind each other, and their places in front. The trace has the events of all
// threads by time. So what fills the pages goes to a spool as it comes, and from there to the file, processor by
// processor. A processor's newest page is in memory until it is full; but there may be half a million processors. So
// all that is in memory is bounded, and when it is too much, all of it goes to the spool: a page is then in several
// parts there. The file is the same, whatever the bound is.

const (
	pageSize = 4096
	pageHead = 16 // timestamp, and size of the data
	pageData = pageSize - pageHead

	// Types of events in a page that are not their lengths in words, and the bits of their times.
	typeTimeExtend = 30
	deltaBits      = 27
	maxWords       = 28

	// Longer events have type 0, and their length in a word of its own, that word included.
	maxEvent = 2048 // bytes of an event, well below a page
)

// maxHeld is how many bytes of pages that are not full are in memory.
const maxHeld = 32 << 20

// A Spool is where pages wait.
type Spool interface {
	io.Writer
	io.ReaderAt
}

type pages struct {
	spool   Spool
	out     *bufio.Writer
	size    int64 // bytes in the spool
	buffers []*buffer
	held    int // bytes of data in buffers
	max     int // what held may be
}

// A buffer is the pages of a processor.
type buffer struct {
	data  []byte // of the newest page, what is not in the spool
	used  int    // bytes of data in that page, with what is in the spool
	start int64  // time of the page
	last  int64  // of its newest event
	parts []part
	full  int // pages that are all in the spool
	tid   int
}

// A part is what the spool has of a page. The last one begins with the page's head.
type part struct {
	at   int64
	size uint16
	last bool
}

func newPages(spool Spool) *pages {
	return &pages{spool: spool, out: bufio.NewWriterSize(spool, 64<<10), max: maxHeld}
}

// buffer returns one of another processor.
func (p *pages) buffer(tid int) *buffer {
	b := &buffer{tid: tid}
	p.buffers = append(p.buffers, b)
	return b
}

// add adds an event of at most maxEvent bytes at a time to a buffer.
func (p *pages) add(b *buffer, at int64, ev []byte) error {
	need := 4 + len(ev)
	if len(ev) > maxWords*4 {
		need += 4
	}
	if b.used > 0 && at-b.last >= 1<<deltaBits {
		need += 8
	}
	if b.used+need > pageData {
		if err := p.endPage(b); err != nil {
			return err
		}
	}
	if b.used == 0 {
		b.start, b.last = at, at
	}
	before := len(b.data)
	delta := uint64(at - b.last)
	if delta >= 1<<deltaBits {
		b.word(uint32(delta)<<5 | typeTimeExtend)
		b.word(uint32(delta >> deltaBits))
		delta = 0
	}
	if len(ev) > maxWords*4 {
		b.word(uint32(delta) << 5)
		b.word(uint32(len(ev) + 4))
	} else {
		b.word(uint32(delta)<<5 | uint32(len(ev)/4))
	}
	b.data = append(b.data, ev...)
	b.last = at
	b.used += len(b.data) - before
	if p.held += len(b.data) - before; p.held > p.max {
		return p.spill()
	}
	return nil
}

func (b *buffer) word(v uint32) { b.data = binary.LittleEndian.AppendUint32(b.data, v) }

// spill moves all that is held to the spool.
func (p *pages) spill() error {
	for _, b := range p.buffers {
		if len(b.data) > 0 {
			if err := p.part(b, nil); err != nil {
				return err
			}
			b.data = nil
		}
	}
	return nil
}

// part moves the data of a buffer to the spool, behind its page's head if that is the end of the page.
func (p *pages) part(b *buffer, head []byte) error {
	if _, err := p.out.Write(head); err != nil {
		return err
	}
	if _, err := p.out.Write(b.data); err != nil {
		return err
	}
	size := len(head) + len(b.data)
	b.parts = append(b.parts, part{p.size, uint16(size), head != nil})
	p.size += int64(size)
	p.held -= len(b.data)
	return nil
}

// endPage ends the newest page of a buffer.
func (p *pages) endPage(b *buffer) error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(b.start))
	if err := p.part(b, binary.LittleEndian.AppendUint64(head, uint64(b.used))); err != nil {
		return err
	}
	b.data, b.used = b.data[:0], 0
	b.full++
	return nil
}

// end ends all pages.
func (p *pages) end() error {
	for _, b := range p.buffers {
		if b.used > 0 {
			if err := p.endPage(b); err != nil {
				return err
			}
		}
	}
	return p.out.Flush()
}

// write writes the pages of a buffer.
func (p *pages) write(w io.Writer, b *buffer) error {
	var page, buf [pageSize]byte
	used := pageHead
	for _, k := range b.parts {
		part := buf[:k.size]
		if _, err := io.ReadFull(io.NewSectionReader(p.spool, k.at, int64(k.size)), part); err != nil {
			return err
		}
		if !k.last {
			used += copy(page[used:], part)
			continue
		}
		copy(page[:], part[:pageHead])
		used += copy(page[used:], part[pageHead:])
		clear(page[used:])
		if _, err := w.Write(page[:]); err != nil {
			return err
		}
		used = pageHead
	}
	return nil
}
