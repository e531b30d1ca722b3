package patch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/format"
)

// Memory that is kept.
//
// What is put into a program depends on nothing but its image and the options, except for where the recorder's buffer is, so
// it can be kept, by somebody who knows that neither these nor this package have changed. The bytes end with a checksum, as a
// system that crashes can leave anything in a file. What an edit is for is left out.

// errKept is returned for what AppendMemory has not made.
var errKept = errors.New("not what is put into a program")

// keptWords is how many words are in front of the contents.
const keptWords = 16

// words are what of it is a number.
func (m *Memory) words() [keptWords]*uint64 {
	return [keptWords]*uint64{
		&m.RXAddr, &m.RWAddr, &m.RWSize, &m.Entry, &m.OrigEntry, &m.PhdrAddr, &m.NullCB, &m.Session, &m.Loader,
		&m.SyscallEnter, &m.SyscallSome, &m.SyscallExit, &m.LoadsSwaps,
	}
}

// Keeps reports whether [AppendMemory] can append it: it is for a program at its exec stop, whose code is not Go's.
func (m *Memory) Keeps() bool {
	return m.Running == nil && !m.Goroutines && m.LoaderCalls == nil && m.Session-m.RXAddr <= uint64(len(m.RX)) &&
		uint64(len(m.RX))-(m.Session-m.RXAddr) >= format.ConfigNSession
}

// AppendMemory appends it in the form that [ReadMemory] reads, without the path of the recorder's buffer. The last four bytes
// are a checksum of the others.
func AppendMemory(b []byte, m *Memory) []byte {
	start := len(b)
	for _, w := range m.words() {
		v := uint64(0)
		if w != nil {
			v = *w
		}
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint64(b, uint64(m.Phnum))
	b = le.AppendUint64(b, uint64(len(m.RX)))
	b = m.appendRX(b)
	b = le.AppendUint64(b, uint64(len(m.Edits)))
	end := uint64(0)
	for i := range m.Edits {
		e := &m.Edits[i]
		b = binary.AppendUvarint(b, e.Addr-end)
		b = binary.AppendUvarint(b, uint64(len(e.Old)))
		b = append(append(b, e.Old...), e.New...)
		end = e.Addr
	}
	return le.AppendUint32(b, keptSum(b[start:]))
}

// appendRX appends RX, without the path of the recorder's buffer.
func (m *Memory) appendRX(b []byte) []byte {
	at := len(b)
	b = append(b, m.RX...)
	clear(b[at+int(m.Session-m.RXAddr):][:format.ConfigNSession])
	return b
}

// keptSum is the checksum at the end. The table is made when it is first wanted.
func keptSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// SetSession says where the recorder's buffer is.
func (m *Memory) SetSession(path string) error {
	room := m.RX[m.Session-m.RXAddr:][:format.ConfigNSession]
	if len(path) >= len(room) {
		return fmt.Errorf("the path of the buffer has %d bytes", len(path))
	}
	clear(room)
	copy(room, path)
	return nil
}

// ReadMemory returns what [AppendMemory] has appended to nothing. It refers to b, and finds out that b is what was
// appended, not that it is for an image.
func ReadMemory(b []byte) (*Memory, error) {
	n := len(b) - crc32.Size
	if n < 0 || keptSum(b[:n]) != le.Uint32(b[n:]) {
		return nil, errKept
	}
	r := keptReader{b: b[:n]}
	m := &Memory{}
	for _, w := range m.words() {
		v := r.word()
		if w != nil {
			*w = v
		}
	}
	m.Phnum = int(r.word())
	m.RX = r.bytes(r.word())
	count := r.word()
	if r.bad || !m.Keeps() || m.Phnum < 0 || count > uint64(len(r.b)) {
		return nil, errKept
	}
	m.Edits = bigslice.Make[arch.Edit](0, int(count))
	end := uint64(0)
	for range count {
		e := arch.Edit{Addr: end + r.number()}
		size := r.number()
		e.Old, e.New = r.bytes(size), r.bytes(size)
		end = e.Addr
		m.Edits = append(m.Edits, e)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errKept
	}
	return m, nil
}

// keptReader reads numbers and bytes. What follows a malformed one is nothing.
type keptReader struct {
	b   []byte
	bad bool
}

func (r *keptReader) word() uint64 {
	b := r.bytes(8)
	if r.bad {
		return 0
	}
	return le.Uint64(b)
}

func (r *keptReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *keptReader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	return b
}
