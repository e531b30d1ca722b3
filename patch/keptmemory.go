package patch

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/internal/format"
)

// Memory that is kept.
//
// What is put into a program depends on nothing but its image and the options, except for where the recorder's buffer is, so
// it can be kept, by somebody who knows that neither these nor this package have changed. It begins with a head, which is all
// that is needed where code is mapped that was changed before ([Memory.Code]): the memory's numbers, and the edits beside that
// code. Of a compiler, the rest is megabytes: the edits in it, and RX. The parts have checksums, as a system that crashes can
// leave anything in a file. What an edit is for is left out.

// errKept is returned for what AppendMemory has not made.
var errKept = errors.New("not what is put into a program")

const (
	// keptWords is how many words of a head are the memory's own.
	keptWords = 16
	// keptHead is its size in bytes, but for edits: these, those of keptAbout, and its checksum.
	keptHead = 8*(keptWords+keptAboutWords) + crc32.Size
	// keptMost bounds the edits in a head, in bytes.
	keptMost = 1 << 20
)

// keptAbout is what a head says beside these words.
type keptAbout struct {
	phnum      uint64
	rx         uint64 // size of RX in bytes
	beside, in keptEdits
	lo, hi     uint64 // the addresses between which the edits in the code lie
	pages      uint64 // [Memory.CodePages]
	rxSum      uint64
}

// keptEdits are edits as they are kept.
type keptEdits struct{ count, size, sum uint64 }

const keptAboutWords = 12

func (a *keptAbout) words() [keptAboutWords]*uint64 {
	return [...]*uint64{&a.phnum, &a.rx, &a.beside.count, &a.beside.size, &a.beside.sum, &a.in.count, &a.in.size, &a.in.sum,
		&a.lo, &a.hi, &a.pages, &a.rxSum}
}

// keptRest is RX and Edits, where they have not been read yet.
type keptRest struct {
	keptAbout
	edits   []arch.Edit // beside the code
	from    io.ReaderAt // the rest is at keptHead + beside.size
	damaged func()      // called if that is not what was kept

	once  sync.Once
	whole *Memory
	err   error
}

// words are what of it is a number.
func (m *Memory) words() [keptWords]*uint64 {
	return [keptWords]*uint64{
		&m.RXAddr, &m.RWAddr, &m.RWSize, &m.Entry, &m.OrigEntry, &m.PhdrAddr, &m.NullCB, &m.Session, &m.Loader,
		&m.SyscallEnter, &m.SyscallSome, &m.SyscallExit, &m.LoadsSwaps,
	}
}

// Keeps reports whether [AppendMemory] can append it, but for LoaderCalls, which are another file's: it is for a program at
// its exec stop, whose code is not Go's.
func (m *Memory) Keeps() bool { return m.Running == nil && !m.Goroutines && m.hasSession() }

// hasSession reports whether there is a place for the path of the recorder's buffer.
func (m *Memory) hasSession() bool {
	return m.Session-m.RXAddr <= m.Size() && m.Size()-(m.Session-m.RXAddr) >= format.ConfigNSession
}

// Size returns the size of RX in bytes.
func (m *Memory) Size() uint64 {
	if m.rest != nil {
		return m.rest.rx
	}
	return uint64(len(m.RX))
}

// Whole returns it with RX and Edits, which [ReadMemory] leaves where they are until somebody wants them. It is safe for
// concurrent use. What is set of the memory before is in what it returns.
func (m *Memory) Whole() (*Memory, error) {
	if m.rest == nil {
		return m, nil
	}
	m.rest.once.Do(func() {
		if m.rest.whole, m.rest.err = m.rest.read(); m.rest.err != nil {
			m.rest.damaged()
		}
	})
	if m.rest.err != nil {
		return nil, m.rest.err
	}
	w := *m
	w.rest, w.RX, w.Edits = nil, m.rest.whole.RX, m.rest.whole.Edits
	return &w, nil
}

// AppendMemory appends it in the form that [ReadMemory] reads, without the path of the recorder's buffer. f is the image.
func AppendMemory(b []byte, m *Memory, f *elfio.File) []byte {
	below, in, above := m.Edits, []arch.Edit(nil), []arch.Edit(nil)
	for _, p := range f.Progs {
		if code := p.Type == elf.PT_LOAD && p.Flags&(elf.PF_X|elf.PF_W) == elf.PF_X; code && len(in) == 0 {
			below, in, above, _ = m.CodeEdits(p.Vaddr, p.Vaddr+p.Memsz)
		}
	}
	about := keptAbout{phnum: uint64(m.Phnum), rx: uint64(len(m.RX)), pages: uint64(m.CodePages())}
	head := about.beside.append(nil, slices.Concat(below, above))
	if len(head) > keptMost {
		head, in = about.beside.append(nil, nil), m.Edits
	}
	if len(in) > 0 {
		last := &in[len(in)-1]
		about.lo, about.hi = in[0].Addr, last.Addr+uint64(len(last.New))
	}
	rest := m.appendRX(about.in.append(nil, in))
	about.rxSum = uint64(keptSum(rest[about.in.size:]))
	start := len(b)
	for _, w := range m.words() {
		v := uint64(0)
		if w != nil {
			v = *w
		}
		b = le.AppendUint64(b, v)
	}
	for _, w := range about.words() {
		b = le.AppendUint64(b, *w)
	}
	b = le.AppendUint32(b, keptSum(b[start:]))
	return append(append(b, head...), rest...)
}

// append appends edits, and takes down how many there are.
func (k *keptEdits) append(b []byte, edits []arch.Edit) []byte {
	start, end := len(b), uint64(0)
	for i := range edits {
		e := &edits[i]
		b = binary.AppendUvarint(b, e.Addr-end)
		b = binary.AppendUvarint(b, uint64(len(e.Old)))
		b = append(append(b, e.Old...), e.New...)
		end = e.Addr
	}
	*k = keptEdits{uint64(len(edits)), uint64(len(b) - start), uint64(keptSum(b[start:]))}
	return b
}

// read reads edits.
func (k *keptEdits) read(b []byte) ([]arch.Edit, error) {
	if uint64(len(b)) != k.size || uint64(keptSum(b)) != k.sum || k.count > k.size {
		return nil, errKept
	}
	r := keptReader{b: b}
	edits := bigslice.Make[arch.Edit](0, int(k.count))
	end := uint64(0)
	for range k.count {
		e := arch.Edit{Addr: end + r.number()}
		size := r.number()
		e.Old, e.New = r.bytes(size), r.bytes(size)
		end = e.Addr
		edits = append(edits, e)
	}
	if r.bad || len(r.b) > 0 {
		return nil, errKept
	}
	return edits, nil
}

// KeptSum returns what tells apart two memories of one image that AppendMemory has appended to nothing, or whose beginning this is.
func KeptSum(b []byte) uint32 { return le.Uint32(b[keptHead-crc32.Size : keptHead]) }

// appendRX appends RX, without the path of the recorder's buffer.
func (m *Memory) appendRX(b []byte) []byte {
	at := len(b)
	b = append(b, m.RX...)
	clear(b[at+int(m.Session-m.RXAddr):][:format.ConfigNSession])
	return b
}

// keptSum is a checksum. The table is made when it is first wanted.
func keptSum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// SetSession says where the recorder's buffer is, in place of the path that RX has.
func (m *Memory) SetSession(path string) error {
	if len(path) >= format.ConfigNSession {
		return fmt.Errorf("the path of the buffer has %d bytes", len(path))
	}
	m.session = path
	return nil
}

// SessionPath returns the path of the recorder's buffer, as it is to be at Session: with a NUL behind it, format.ConfigNSession
// bytes. It is nil if there is no place for it.
func (m *Memory) SessionPath() []byte {
	if !m.hasSession() {
		return nil
	}
	b := make([]byte, format.ConfigNSession)
	if m.session != "" || m.rest != nil {
		copy(b, m.session)
	} else {
		copy(b, m.RX[m.Session-m.RXAddr:])
	}
	return b
}

// ReadMemory returns what [AppendMemory] has appended to nothing, of which there are size bytes, and its KeptSum. It finds out that
// these are what was appended, not that it is for an image. RX and Edits are read from r by Whole, which finds that out of them, and
// calls damaged if they are not.
func ReadMemory(r io.ReaderAt, size int64, damaged func()) (m *Memory, sum uint32, err error) {
	b := make([]byte, keptHead)
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, 0, errKept
	}
	sum = KeptSum(b)
	if keptSum(b[:keptHead-crc32.Size]) != sum {
		return nil, 0, errKept
	}
	rest := &keptRest{from: r, damaged: damaged}
	m = &Memory{rest: rest}
	for i, w := range m.words() {
		if w != nil {
			*w = le.Uint64(b[8*i:])
		}
	}
	for i, w := range rest.words() {
		*w = le.Uint64(b[8*(keptWords+i):])
	}
	m.Phnum = int(rest.phnum)
	if rest.beside.size > keptMost || m.Phnum < 0 || !m.Keeps() {
		return nil, 0, errKept
	}
	if all := uint64(size) - keptHead - rest.beside.size; rest.rx > all || rest.in.size != all-rest.rx {
		return nil, 0, errKept
	}
	b = make([]byte, rest.beside.size)
	if _, err := r.ReadAt(b, keptHead); err != nil {
		return nil, 0, errKept
	}
	if rest.edits, err = rest.beside.read(b); err != nil {
		return nil, 0, err
	}
	return m, sum, nil
}

// read reads what ReadMemory has left.
func (k *keptRest) read() (*Memory, error) {
	b := make([]byte, k.in.size+k.rx)
	if _, err := k.from.ReadAt(b, int64(keptHead+k.beside.size)); err != nil {
		return nil, err
	}
	rx := b[k.in.size:]
	if uint64(keptSum(rx)) != k.rxSum {
		return nil, errKept
	}
	in, err := k.in.read(b[:k.in.size])
	if err != nil {
		return nil, err
	}
	first, _ := editsIn(k.edits, k.lo, k.hi)
	return &Memory{RX: rx, Edits: slices.Concat(k.edits[:first], in, k.edits[first:])}, nil
}

// keptReader reads numbers and bytes. What follows a malformed one is nothing.
type keptReader struct {
	b   []byte
	bad bool
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
