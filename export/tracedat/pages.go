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
// parts there. The file is the same, whatever the bound is. Where a processor's parts are is in memory up to listed
// parts, and then goes to the spool, too.

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

// listed is how many parts of a processor are in memory; partSize is what one takes in the spool.
const (
	listed   = 256
	partSize = 11
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
	data  []byte  // of the newest page, what is not in the spool
	used  int     // bytes of data in that page, with what is in the spool
	start int64   // time of the page
	last  int64   // of its newest event
	lists []int64 // where the spool has lists of the first parts, listed each
	parts []part  // the others
	full  int     // pages that are all in the spool
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
	if len(b.parts) == listed {
		return p.list(b)
	}
	return nil
}

// list moves the list of a buffer's parts to the spool.
func (p *pages) list(b *buffer) error {
	text := make([]byte, 0, listed*partSize)
	for _, k := range b.parts {
		text = binary.LittleEndian.AppendUint64(text, uint64(k.at))
		text = binary.LittleEndian.AppendUint16(text, k.size)
		last := byte(0)
		if k.last {
			last = 1
		}
		text = append(text, last)
	}
	if _, err := p.out.Write(text); err != nil {
		return err
	}
	b.lists, b.parts = append(b.lists, p.size), b.parts[:0]
	p.size += int64(len(text))
	return nil
}

// listAt reads such a list.
func (p *pages) listAt(at int64, parts []part) ([]part, error) {
	var text [listed * partSize]byte
	if _, err := io.ReadFull(io.NewSectionReader(p.spool, at, int64(len(text))), text[:]); err != nil {
		return nil, err
	}
	for b := text[:]; len(b) > 0; b = b[partSize:] {
		parts = append(parts, part{int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint16(b[8:]), b[10] != 0})
	}
	return parts, nil
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
	o := output{w: w, spool: p.spool, used: pageHead}
	parts := make([]part, 0, listed)
	for _, at := range b.lists {
		var err error
		if parts, err = p.listAt(at, parts[:0]); err != nil {
			return err
		}
		if err := o.add(parts); err != nil {
			return err
		}
	}
	return o.add(b.parts)
}

// An output puts pages together.
type output struct {
	w         io.Writer
	spool     Spool
	page, buf [pageSize]byte
	used      int // bytes of page
}

// add writes the pages that end with some parts.
func (o *output) add(parts []part) error {
	for _, k := range parts {
		part := o.buf[:k.size]
		if _, err := io.ReadFull(io.NewSectionReader(o.spool, k.at, int64(k.size)), part); err != nil {
			return err
		}
		if !k.last {
			o.used += copy(o.page[o.used:], part)
			continue
		}
		copy(o.page[:], part[:pageHead])
		o.used += copy(o.page[o.used:], part[pageHead:])
		clear(o.page[o.used:])
		if _, err := o.w.Write(o.page[:]); err != nil {
			return err
		}
		o.used = pageHead
	}
	return nil
}
