//go:build linux

package pool

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/limits"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/trace"
)

// Name is a pool's name as a memory file, by which runtimes tell it from other descriptors.
const Name = "fentry-pool"

// Limits of the pool's size. A task needs a chunk while it writes to another.
const (
	minChunks = 4
	maxChunks = 1 << 20 // 64 GiB
)

// Small chunks, see stub/src/pool.c: a task begins in one, and goes on in them while
// there are too many tasks for the others. Their memory is used from the first to
// the last and only as it is needed, 4 KiB a thread that lives.
const (
	smallSize  = 4096
	perFull    = 64      // a chunk of full size
	mostSmall  = 1 << 16 // 256 MiB
	bitsInWord = 64
)

// sizeSeals keep the size of the pool. Every traced process can open it, and could
// truncate it otherwise, so that whoever touches it next dies by SIGBUS.
const sizeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// images is how many images the programs of a session can have with ids of their own:
// the entries of the table of ranges.
const images = 2048

// switchedOff is how many functions can be switched off in a session.
const switchedOff = 1 << 16

// Pool is the shared memory the traced processes write to.
//
// Its chunks have numbers: first those of full size, then the small ones.
type Pool struct {
	FD    int    // of the memory file
	Mem   []byte // all of it; nil when it cannot be had back (Abandoned)
	N     int    // chunks of full size
	Small int    // small chunks

	header int // bytes before the first chunk
	bits   int // where the header says which small ones are free
	ranges int // where it has the table of id ranges
	off    int // where it lists the functions that are switched off
	offs   int // and how many of them there are
	alone  bool

	settled <-chan struct{} // closed when known is; nil: it is
	known   int             // another descriptor that it is; 0: none
}

// New makes an empty pool with room for about size bytes of chunks of full size.
func New(size int64, policy trace.Policy, now clock.Reading, hz uint64) (*Pool, error) {
	n := max(size/format.ChunkSize, minChunks)
	if n > maxChunks {
		return nil, fmt.Errorf("buffer of %d bytes: the largest is %d", size, int64(maxChunks)*format.ChunkSize)
	}
	p := layout(int(n), smallChunks(n))
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	total := p.offset(p.N + p.Small)
	if err := unix.Ftruncate(fd, int64(total)); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EFBIG) {
			return nil, fmt.Errorf("buffer of %d bytes: %d are needed with all that belongs to it, more than ulimit -f allows: %w", size, total, err)
		}
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, sizeSeals); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("seal the buffer: %w", err)
	}
	p.Mem, err = unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	p.FD = fd
	p.settled = p.wellKnown()
	PutHeader(p.Mem, p.N, p.header, policy, trace.LayoutSlots, os.Getpid(), now, hz)
	le.PutUint64(p.Mem[format.HRecorderNs:], procfs.PIDNamespace(os.Getpid()))
	le.PutUint32(p.Mem[format.HSmallChunks:], uint32(p.Small))
	le.PutUint32(p.Mem[format.HSmallSize:], smallSize)
	le.PutUint32(p.Mem[format.HSmallFree:], uint32(p.bits))
	le.PutUint32(p.Mem[format.HRanges:], uint32(p.ranges))
	le.PutUint32(p.Mem[format.HRangesRoom:], images)
	le.PutUint32(p.Mem[format.HSwitchedOff:], uint32(p.off))
	le.PutUint32(p.Mem[format.HSwitchedOffRoom:], switchedOff)
	for i := range p.Small / bitsInWord {
		p.free(i).Store(^uint64(0))
	}
	return p, nil
}

// layout says where all is in a pool with so many chunks of full size, and so many small ones.
func layout(n, small int) *Pool {
	p := &Pool{FD: -1, N: n, Small: small}
	p.bits = (format.StatesOff + 4*(p.N+p.Small) + 7) &^ 7
	p.ranges = p.bits + p.Small/bitsInWord*8
	p.off = p.ranges + images*format.RangeEntry
	p.header = (p.off + switchedOff*4 + 4095) &^ 4095
	return p
}

// Open maps the pool of another process, which has so many chunks of full size, and so many small ones: its memory file is
// this process's by a descriptor. Where a program has sealed it, or the other process because nobody used it any more, the
// result is a private copy.
func Open(fd, n, small int) (*Pool, error) {
	p := layout(n, small)
	total := p.offset(p.N + p.Small)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if n < 0 || small < 0 || st.Size != int64(total) {
		return nil, fmt.Errorf("a buffer of %d bytes has other chunks than %d and %d", st.Size, n, small)
	}
	var err error
	p.FD = fd
	if p.Mem, err = unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == unix.EPERM {
		p.Mem, err = unix.Mmap(fd, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		p.alone = true
	}
	return p, err
}

// smallChunks is how many small chunks there are beside n of full size: as many as the
// limits of a file's size and of address space leave room for, a multiple of bitsInWord.
// What else the recorder needs gets as much address space as they do.
func smallChunks(n int64) int {
	small := min(n*perFull, mostSmall)
	if space := limits.AddressSpace(os.DirFS("/")).Bytes; space != limits.None {
		small = min(small, max(0, (space-n*format.ChunkSize)/2/smallSize))
	}
	if most := limits.FileSize().Bytes; most != limits.None {
		const header = format.StatesOff + mostSmall*5 + images*format.RangeEntry + switchedOff*4 + 4096
		small = min(small, max(0, (most-header-n*(format.ChunkSize+4))/smallSize))
	}
	return int(small) &^ (bitsInWord - 1)
}

// offset is where chunk i is in the memory.
func (p *Pool) offset(i int) int {
	return p.header + min(i, p.N)*format.ChunkSize + max(i-p.N, 0)*smallSize
}

// Path is where other processes find the pool.
func (p *Pool) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.FD) }

// Close gives up the recorder's side; processes that map the pool keep it.
func (p *Pool) Close() {
	if p.Mem != nil {
		unix.Munmap(p.Mem)
		p.Mem = nil
	}
	if p.FD >= 0 {
		unix.Close(p.FD)
	}
	if p.WaitKnown(); p.known != 0 {
		unix.Close(p.known)
		p.known = 0
	}
}

// MapHeader maps the header of a file that programs write to themselves, for the requests that they make. Whoever
// looks at it must expect the file to be truncated meanwhile: see mapped.Guard.
func MapHeader(f *os.File) (*Pool, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, format.HeaderSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mmap: %w", f.Name(), err)
	}
	return &Pool{FD: -1, Mem: mem}, nil
}

// Word is an atomic view of a 32-bit word of the header.
func (p *Pool) Word(off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&p.Mem[off]))
}

// Word64 is an atomic view of a 64-bit word of the header.
func (p *Pool) Word64(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&p.Mem[off]))
}

// State is the state of a chunk.
func (p *Pool) State(i int) *atomic.Uint32 { return p.Word(format.StatesOff + 4*i) }

// Chunk is the memory of a chunk.
func (p *Pool) Chunk(i int) []byte {
	off, end := p.offset(i), p.offset(i+1)
	return p.Mem[off:end:end]
}

// free is a word of the bits that say which small chunks are free.
func (p *Pool) free(word int) *atomic.Uint64 { return p.Word64(p.bits + 8*word) }

// FreeSmall is how many small chunks are free.
func (p *Pool) FreeSmall() int {
	n := 0
	for i := range p.Small / bitsInWord {
		n += bits.OnesCount64(p.free(i).Load())
	}
	return n
}

// All are the numbers of all chunks of full size, and of all small ones that are not
// free, whatever the bits say.
func (p *Pool) All(yield func(int) bool) {
	for i := range p.N {
		if !yield(i) {
			return
		}
	}
	for i, end := p.N, p.N+p.Small; i < end; {
		// Of tens of thousands nearly all are free, and zero: two at a time.
		if at := format.StatesOff + 4*i; at%8 == 0 && i+1 < end && p.Word64(at).Load() == 0 {
			i += 2
			continue
		}
		if p.State(i).Load() != format.StateFree && !yield(i) {
			return
		}
		i++
	}
}

// InUse are the numbers of all chunks of full size, and of the small ones that may be
// in use: of tens of thousands these are few. What a process has written to the bits
// is its own loss: at the end, all are looked at.
func (p *Pool) InUse(yield func(int) bool) {
	for i := range p.N {
		if !yield(i) {
			return
		}
	}
	for w := range p.Small / bitsInWord {
		for used := ^p.free(w).Load(); used != 0; used &= used - 1 {
			if !yield(p.N + w*bitsInWord + bits.TrailingZeros64(used)) {
				return
			}
		}
	}
}

// Release gives a chunk that was claimed back, cleared in its first used bytes.
// Chunks are zero when they are taken: what a killed task left unsealed ends at
// the last word that is not.
//
// The bit of a small chunk comes first: as soon as the state says free, a task that has
// read the bit before can take the chunk and clear it, and set afterwards it would hide
// what the task writes from InUse.
func (p *Pool) Release(i, used int) {
	if p.alone {
		// Nobody will take it, and clearing a private copy would copy it first.
		p.State(i).Store(format.StateFree)
		return
	}
	clear(p.Chunk(i)[:used])
	if k := i - p.N; k >= 0 {
		p.free(k / bitsInWord).Or(1 << (k % bitsInWord))
	}
	p.State(i).Store(format.StateFree)
}

// Announce wakes tasks that wait for a chunk, when n have become free: no more than
// that. Thousands can wait, and would keep the recorder from the processor. One that
// cannot use what has become free leaves it to those that look around by themselves.
func (p *Pool) Announce(n int) {
	p.Word(format.HFreed).Add(1)
	if p.Word(format.HWaiters).Load() != 0 {
		FutexWake(p.Word(format.HFreed), n)
	}
}

// Shut tells all runtimes to stop recording.
func (p *Pool) Shut() {
	p.Word(format.HClosed).Store(1)
	p.Word(format.HFreed).Add(1)
	FutexWake(p.Word(format.HFreed), math.MaxInt32)
}

// Kind is what a chunk says it is; its task may still write to it.
func (p *Pool) Kind(i int) trace.ChunkKind {
	return trace.ChunkKind(le.Uint16(p.Chunk(i)[format.CKind:]))
}

// PID is the process id that a chunk says, while its task may still write to it; 0: it is no chunk yet.
func (p *Pool) PID(i int) int {
	b := p.Chunk(i)
	at := func(off int) uint32 { return (*atomic.Uint32)(unsafe.Pointer(&b[off])).Load() }
	if at(format.CMagic) != format.ChunkMagic {
		return 0
	}
	return int(at(format.CPID))
}

// Counter is the counter at a chunk's beginning.
func (p *Pool) Counter(i int) uint64 { return le.Uint64(p.Chunk(i)[format.CCounter:]) }
