package elfio

import "io"

// RawEdit overwrites bytes of the file.
type RawEdit struct {
	Off uint64
	New []byte
}

// Changed files.
//
// Files have hundreds of megabytes of which a patch changes a few thousand places. So a change is the original, which
// may be mapped, with edits and pieces behind it. Written out, stretches without edits go from where they are, and the
// others through a buffer that stays in the processor's cache; into a copy that shares its blocks with the original
// only what differs is written.

// Output is a changed file: the original, edits to it, and what is appended.
type Output struct {
	Orig  []byte
	Edits []RawEdit // sorted, disjoint, inside the original
	Tail  [][]byte  // what is appended, in pieces
}

// Size returns the size of the changed image in bytes.
func (o *Output) Size() int64 {
	n := int64(len(o.Orig))
	for _, p := range o.Tail {
		n += int64(len(p))
	}
	return n
}

// OriginalSize returns the size of the original file in bytes.
func (o *Output) OriginalSize() int64 { return int64(len(o.Orig)) }

// Bytes returns the changed image in a new slice.
func (o *Output) Bytes() []byte {
	b := append(make([]byte, 0, o.Size()), o.Orig...)
	for _, e := range o.Edits {
		copy(b[e.Off:], e.New)
	}
	for _, p := range o.Tail {
		b = append(b, p...)
	}
	return b
}

// Parts returns the changed image in pieces: ranges of the original, the edits between them, and what is appended.
// Nothing is copied.
func (o *Output) Parts() [][]byte {
	parts := make([][]byte, 0, 2*len(o.Edits)+2+len(o.Tail))
	at := uint64(0)
	for _, e := range o.Edits {
		parts = append(parts, o.Orig[at:e.Off], e.New)
		at = e.Off + uint64(len(e.New))
	}
	return append(append(parts, o.Orig[at:]), o.Tail...)
}

// stretch is the unit the changed image is written in. What is copied into a buffer to be edited should still be in the
// processor's cache when it is written, and large writes that begin at multiples of their size are the cheapest.
const stretch = 1 << 18

// WriteTo writes the changed image to w. Ranges without an edit are not copied first.
func (o *Output) WriteTo(w io.Writer) (int64, error) {
	g := gatherer{w: w}
	size, next := uint64(len(o.Orig)), 0 // next edit
	for at := uint64(0); at < size && g.err == nil; {
		clean := size
		if next < len(o.Edits) {
			clean = o.Edits[next].Off &^ (stretch - 1)
		}
		if clean > at {
			g.put(o.Orig[at:clean])
			at = clean
			continue
		}
		g.flush()
		end := min(at+stretch, size)
		b := append(g.buf, o.Orig[at:end]...)
		for ; next < len(o.Edits) && o.Edits[next].Off < end; next++ {
			e := &o.Edits[next]
			from, to := max(e.Off, at), min(e.Off+uint64(len(e.New)), end)
			copy(b[from-at:], e.New[from-e.Off:to-e.Off])
			if e.Off+uint64(len(e.New)) > end {
				break // goes on in the next stretch
			}
		}
		g.buf = b
		at = end
	}
	for _, p := range o.Tail {
		g.put(p)
	}
	g.flush()
	return g.n, g.err
}

// ApplyTo turns w, which must hold a copy of the original, into the changed image. It writes little more than the
// bytes that differ, for copies that share their blocks with the original (reflinks).
func (o *Output) ApplyTo(w io.WriterAt) (err error) {
	var buf []byte
	for i := 0; i < len(o.Edits); {
		start := o.Edits[i].Off
		end := start
		j := i
		for ; j < len(o.Edits); j++ {
			e := o.Edits[j]
			if j > i && (e.Off-end > nearEdits || e.Off+uint64(len(e.New))-start > stretch) {
				break
			}
			end = e.Off + uint64(len(e.New))
		}
		buf = append(buf[:0], o.Orig[start:end]...)
		for ; i < j; i++ {
			copy(buf[o.Edits[i].Off-start:], o.Edits[i].New)
		}
		if _, err := w.WriteAt(buf, int64(start)); err != nil {
			return err
		}
	}
	g := gatherer{w: io.NewOffsetWriter(w, int64(len(o.Orig)))}
	for _, p := range o.Tail {
		g.put(p)
	}
	g.flush()
	return g.err
}

// nearEdits is how far apart edits are written together: a write costs as much as some thousand bytes of it.
const nearEdits = 4096

// gatherer writes small pieces together and large ones as they are.
type gatherer struct {
	w   io.Writer
	buf []byte // not written yet, at most a stretch
	n   int64
	err error
}

// put writes b, now or later.
func (g *gatherer) put(b []byte) {
	if len(b) < stretch/4 {
		if len(g.buf)+len(b) > stretch {
			g.flush()
		}
		if g.buf == nil {
			g.buf = make([]byte, 0, stretch)
		}
		g.buf = append(g.buf, b...)
		return
	}
	g.flush()
	g.write(b)
}

func (g *gatherer) flush() {
	g.write(g.buf)
	if g.buf == nil {
		g.buf = make([]byte, 0, stretch)
	}
	g.buf = g.buf[:0]
}

func (g *gatherer) write(b []byte) {
	if g.err == nil && len(b) > 0 {
		var n int
		n, g.err = g.w.Write(b)
		g.n += int64(n)
	}
}
