package inject

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/parallel"
)

// The undo record, contents of section .fentry.undo, little-endian whatever the image is:
//
//	 0  magic "FENTRYU2"
//	 8  u64 size of the original file
//	16  checksum of the original file, 32 bytes (see checksum)
//	48  u64 bytes of the body as stored
//	56  u64 bytes of the body expanded
//	64  body, DEFLATE (RFC 1951): uvarint number of ranges; the uvarint gap of each since the end of the last one; of each
//	    uvarint twice the length, and 1 if its first word leads where the last one that is kept does; then the original
//	    bytes of all ranges, but for such words
//	..  in an image without section headers, the sections that were added (see described.go)
//	..  u64 bytes of the record including this field, magic "FENTRYUZ"
//
// A word is 4 bytes, and leads as far back as it says. Entries of an unwind table begin so: all that belong to one CIE lead
// to that. They are half of the ranges, and no two such words are the same: DEFLATE would have to keep each.
//
// An image without section headers ends with the record, which its last 16 bytes find.
const (
	undoMagic   = "FENTRYU2"
	undoEnd     = "FENTRYUZ"
	undoHeader  = 64
	undoTrailer = 16
	undoSection = ".fentry.undo"
)

// span is a range of file bytes.
type span struct{ off, n uint64 }

// undoWord is the size of a word that may be left out.
const undoWord = 4

// A lead is where words that are left out lead, as an offset in the file, modulo 2^32.
type lead struct {
	to    uint32
	known bool
}

// next takes the word at an offset, and reports whether it leads where the last one did.
func (l *lead) next(off uint64, word []byte) bool {
	last := *l
	*l = lead{uint32(off) - binary.LittleEndian.Uint32(word), true}
	return *l == last
}

// checksumBlock is the unit of checksum.
const checksumBlock = 1 << 12

// checksum is the SHA-256 of the CRC-32Cs, little-endian, of the file's blocks of 4 KiB. It guards against
// files that other tools rewrote, not against forgers, who can write any record they like; and processors
// compute CRC-32C ten times as fast as SHA-256, which would cost more than all the rest of an injection.
func checksum(b []byte) [sha256.Size]byte {
	const chunk = 1 << 8 // blocks for one goroutine at a time
	n := (len(b) + checksumBlock - 1) / checksumBlock
	sums := make([]byte, n*4)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	parallel.Ranges(n, chunk, func(from, to int) {
		for i := from; i < to; i++ {
			crc := crc32.Checksum(b[i*checksumBlock:min((i+1)*checksumBlock, len(b))], castagnoli)
			binary.LittleEndian.PutUint32(sums[i*4:], crc)
		}
	})
	return sha256.Sum256(sums)
}

// encodeUndo makes the record for an image with edits, sorted and disjoint, which it needs the places of, and with
// descriptions of sections.
func encodeUndo(orig []byte, edits []elfio.RawEdit, sections []byte) []byte {
	n := 0
	for i := range edits {
		n += len(edits[i].New)
	}
	body := bigslice.Make[byte](0, binary.MaxVarintLen64+4*len(edits)) // gaps of less than 2 MiB, lengths of less than 64
	body = binary.AppendUvarint(body, uint64(len(edits)))
	at := uint64(0)
	for i := range edits {
		e := &edits[i]
		body = binary.AppendUvarint(body, e.Off-at)
		at = e.Off + uint64(len(e.New))
	}
	old := bigslice.Make[byte](0, n)
	var l lead
	for i := range edits {
		e := &edits[i]
		size, b := uint64(len(e.New))*2, orig[e.Off:e.Off+uint64(len(e.New))]
		if len(b) >= undoWord && l.next(e.Off, b) {
			size, b = size|1, b[undoWord:]
		}
		body, old = binary.AppendUvarint(body, size), append(old, b...)
	}
	var z bytes.Buffer
	w, err := flate.NewWriter(&z, flate.DefaultCompression)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		_, err = w.Write(old)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(err) // a constant level and a memory buffer
	}
	out := make([]byte, undoHeader, undoHeader+z.Len()+len(sections)+undoTrailer)
	copy(out, undoMagic)
	le := binary.LittleEndian
	le.PutUint64(out[8:], uint64(len(orig)))
	sum := checksum(orig)
	copy(out[16:], sum[:])
	le.PutUint64(out[48:], uint64(z.Len()))
	le.PutUint64(out[56:], uint64(len(body)+len(old)))
	out = append(append(out, z.Bytes()...), sections...)
	out = le.AppendUint64(out, uint64(len(out)+undoTrailer))
	return append(out, undoEnd...)
}

// trailer returns the undo record at the end of b.
func trailer(b []byte) ([]byte, bool) {
	if len(b) < undoHeader+undoTrailer || string(b[len(b)-8:]) != undoEnd {
		return nil, false
	}
	n := binary.LittleEndian.Uint64(b[len(b)-16:])
	if n < undoHeader+undoTrailer || n > uint64(len(b)) {
		return nil, false
	}
	rec := b[uint64(len(b))-n:]
	if string(rec[:8]) != undoMagic {
		return nil, false
	}
	return rec, true
}

// undoRecord is a decoded record.
type undoRecord struct {
	size  uint64
	sum   [sha256.Size]byte
	spans []span
	old   []byte // the original bytes of all spans
}

// decodeUndo reads a record. limit is the size of the file it is in.
func decodeUndo(rec []byte, off, limit uint64) (*undoRecord, error) {
	bad := func(format string, args ...any) (*undoRecord, error) {
		return nil, elfio.FormatErrorf("undo record", off, format, args...)
	}
	if len(rec) < undoHeader || string(rec[:8]) != undoMagic {
		return bad("no record of this version")
	}
	le := binary.LittleEndian
	u := &undoRecord{size: le.Uint64(rec[8:])}
	copy(u.sum[:], rec[16:48])
	stored, expanded := le.Uint64(rec[48:]), le.Uint64(rec[56:])
	if u.size > limit {
		return bad("original of %#x bytes in a file of %#x", u.size, limit)
	}
	z, ok := raw.Slice(rec, undoHeader, stored)
	// The ranges are disjoint parts of the original; the worst case, ranges of one byte side by side, takes 3 bytes each.
	if !ok || expanded > 4096+4*u.size {
		return bad("%#x bytes stored, %#x expanded do not fit", stored, expanded)
	}
	// DEFLATE expands at most 1032 times; do not allocate on the word of a header.
	if expanded > 1040*stored+1040 {
		return bad("%#x bytes cannot expand to %#x", stored, expanded)
	}
	body, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(z)), int64(expanded)+1))
	if err != nil || uint64(len(body)) != expanded {
		return bad("body damaged: %d of %d bytes, %v", len(body), expanded, err)
	}
	uv := func() uint64 {
		v, n := binary.Uvarint(body)
		if n <= 0 {
			ok = false
			return 0
		}
		body = body[n:]
		return v
	}
	count := uv()
	if !ok || count > uint64(len(body))/2 { // of each there are a gap and a length
		return bad("%d ranges in %#x bytes", count, expanded)
	}
	u.spans = make([]span, count)
	for i := range u.spans {
		u.spans[i].off = uv()
	}
	words := make([]bool, count) // those that are left out
	at, total := uint64(0), uint64(0)
	for i := range u.spans {
		s, size := &u.spans[i], uv()
		n, gap := size/2, s.off
		words[i] = size&1 != 0
		if !ok || gap > u.size-at || n > u.size-at-gap || words[i] && n < undoWord {
			return bad("range %d is outside the original, or too small", i)
		}
		s.off, s.n = at+gap, n
		at += gap + n
		if total += n; words[i] {
			total -= undoWord
		}
	}
	if total != uint64(len(body)) {
		return bad("%#x bytes for ranges of %#x", len(body), total)
	}
	if u.old, ok = withWords(body, u.spans, words); !ok {
		return bad("the first word that leads somewhere is missing")
	}
	return u, nil
}

// withWords returns the bytes of spans, with the words that were left out; false: none says what they are.
func withWords(b []byte, spans []span, out []bool) ([]byte, bool) {
	old := bigslice.Make[byte](0, len(b)+undoWord*len(spans))
	var l lead
	for i, s := range spans {
		if out[i] {
			if !l.known {
				return nil, false
			}
			old = binary.LittleEndian.AppendUint32(old, uint32(s.off)-l.to)
			s.n -= undoWord
		} else if s.n >= undoWord {
			l.next(s.off, b)
		}
		old, b = append(old, b[:s.n]...), b[s.n:]
	}
	return old, true
}

// undoBytes returns the undo record of an image as it is stored, and its offset; nil: there is none.
func (f *image) undoBytes() ([]byte, uint64, error) {
	if i := f.SectionIndex(undoSection); i >= 0 {
		rec, err := f.SectionData(i)
		return rec, f.Sections[i].Off, err
	}
	rec, _ := trailer(f.raw)
	return rec, uint64(len(f.raw) - len(rec)), nil
}

// findUndo returns the undo record of an image.
func (f *image) findUndo() (*undoRecord, error) {
	rec, off, err := f.undoBytes()
	switch {
	case err != nil:
		return nil, err
	case rec != nil:
		return decodeUndo(rec, off, uint64(len(f.raw)))
	case f.injected():
		return nil, fmt.Errorf("%w: section %s is gone", ErrUndoLost, undoSection)
	}
	return nil, ErrNotInjected
}

// Undo returns the image as it was before [Into], byte for byte, in a new slice. Its checksum is verified.
//
// It returns ErrNotInjected for an image without an injection, and an error wrapping ErrUndoLost if another tool
// dropped the undo record or rewrote the file after the injection.
func Undo(b []byte) ([]byte, error) {
	f, err := elfio.Parse(b)
	if err != nil {
		return nil, err
	}
	u, err := newImage(f).findUndo()
	if err != nil {
		return nil, err
	}
	out := append(make([]byte, 0, u.size), b[:u.size]...)
	old := u.old
	for _, s := range u.spans {
		copy(out[s.off:s.off+s.n], old)
		old = old[s.n:]
	}
	if checksum(out) != u.sum {
		return nil, fmt.Errorf("%w: the file was rewritten after it was injected (the original's checksum does not match)",
			ErrUndoLost)
	}
	return out, nil
}
