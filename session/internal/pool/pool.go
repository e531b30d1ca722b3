//go:build linux

package pool

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/trace"
)

// Where runtimes look for a pool.
const (
	Name   = "fentry-pool" // of the memfd; runtimes look for it by this name
	poolFD = 1000          // and at this descriptor of their ancestors
)

// Limits of the pool's size. A task needs a chunk while it writes to another.
const (
	minChunks = 4
	maxChunks = 1 << 20 // 64 GiB
)

// Pool is the shared memory the traced processes write to.
type Pool struct {
	FD     int    // of the memory file
	Mem    []byte // all of it; nil when it cannot be had back (Abandoned)
	N      int    // chunks
	header int    // bytes before the first
	alone  bool
}

// New makes an empty pool with room for about size bytes of chunks.
func New(size int64, policy trace.Policy, now clock.Reading, hz uint64) (*Pool, error) {
	n := size / format.ChunkSize
	if n < minChunks {
		n = minChunks
	}
	if n > maxChunks {
		return nil, fmt.Errorf("buffer of %d bytes: the largest is %d", size, int64(maxChunks)*format.ChunkSize)
	}
	p := &Pool{N: int(n), header: poolHeader(int(n))}
	fd, err := unix.MemfdCreate(Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	total := int64(p.header) + n*format.ChunkSize
	if err := unix.Ftruncate(fd, total); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	p.Mem, err = unix.Mmap(fd, 0, int(total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	p.FD = wellKnownFD(fd)
	PutHeader(p.Mem, p.N, p.header, policy, trace.LayoutSlots, os.Getpid(), now, hz)
	return p, nil
}

// Path is where other processes find the pool.
func (p *Pool) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.FD) }

// Abandoned tells whether no other process maps the pool any more, and none will:
// the kernel seals a memory file against writing only while nobody maps it
// writable. The recorder's own mapping is given up for that moment, so nothing
// else may use the pool meanwhile. Once true, p.mem is a private copy.
//
// This sees what /proc would not show, such as children that have recorded
// nothing yet, and processes of other users and in other PID namespaces.
func (p *Pool) Abandoned() (bool, error) {
	if p.alone {
		return true, nil
	}
	size := len(p.Mem)
	if err := unix.Munmap(p.Mem); err != nil {
		return false, fmt.Errorf("unmap the buffer: %w", err)
	}
	p.Mem = nil
	_, serr := unix.FcntlInt(uintptr(p.FD), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	flags := unix.MAP_SHARED
	if serr == nil {
		p.alone, flags = true, unix.MAP_PRIVATE
	}
	var err error
	if p.Mem, err = unix.Mmap(p.FD, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		return false, fmt.Errorf("map the buffer: %w", err)
	}
	if serr != nil && serr != unix.EBUSY {
		return false, fmt.Errorf("seal the buffer: %w", serr)
	}
	return p.alone, nil
}

// Close gives up the recorder's side; processes that map the pool keep it.
func (p *Pool) Close() {
	if p.Mem != nil {
		unix.Munmap(p.Mem)
		p.Mem = nil
	}
	unix.Close(p.FD)
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
	off := p.header + i*format.ChunkSize
	return p.Mem[off : off+format.ChunkSize : off+format.ChunkSize]
}

// Release gives a chunk that was claimed back, cleared in its first used bytes.
// Chunks are zero when they are taken: what a killed task left unsealed ends at
// the last word that is not.
func (p *Pool) Release(i, used int) {
	clear(p.Chunk(i)[:used])
	p.State(i).Store(format.StateFree)
}

// Announce wakes the tasks that wait for a chunk.
func (p *Pool) Announce() {
	p.Word(format.HFreed).Add(1)
	if p.Word(format.HWaiters).Load() != 0 {
		FutexWake(p.Word(format.HFreed))
	}
}

// Shut tells all runtimes to stop recording.
func (p *Pool) Shut() {
	p.Word(format.HClosed).Store(1)
	p.Word(format.HFreed).Add(1)
	FutexWake(p.Word(format.HFreed))
}

// Kind is what a chunk says it is; its task may still write to it.
func (p *Pool) Kind(i int) trace.ChunkKind {
	return trace.ChunkKind(le.Uint16(p.Chunk(i)[format.CKind:]))
}

// Counter is the counter at a chunk's beginning.
func (p *Pool) Counter(i int) uint64 { return le.Uint64(p.Chunk(i)[format.CCounter:]) }
