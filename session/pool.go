//go:build linux

package session

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

const (
	poolName = "fentry-pool" // of the memfd; runtimes look for it by this name
	poolFD   = 1000          // and at this descriptor of their ancestors
)

// Limits of the pool's size. A task needs a chunk while it writes to another.
const (
	minChunks = 4
	maxChunks = 1 << 20 // 64 GiB
)

// pool is the shared memory the traced processes write to.
type pool struct {
	fd     int
	mem    []byte
	n      int // chunks
	header int // bytes before the first
	alone  bool
}

// newPool makes an empty pool with room for about size bytes of chunks.
func newPool(size int64, policy trace.Policy, now clockReading, hz uint64) (*pool, error) {
	n := size / format.ChunkSize
	if n < minChunks {
		n = minChunks
	}
	if n > maxChunks {
		return nil, fmt.Errorf("buffer of %d bytes: the largest is %d", size, int64(maxChunks)*format.ChunkSize)
	}
	p := &pool{n: int(n), header: poolHeader(int(n))}
	fd, err := unix.MemfdCreate(poolName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	total := int64(p.header) + n*format.ChunkSize
	if err := unix.Ftruncate(fd, total); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	p.mem, err = unix.Mmap(fd, 0, int(total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("buffer of %d bytes: %w", size, err)
	}
	p.fd = wellKnownFD(fd)
	putHeader(p.mem, p.n, p.header, policy, trace.LayoutSlots, os.Getpid(), now, hz)
	return p, nil
}

// wellKnownFD moves fd to the descriptor where runtimes look for it. Where that
// cannot be had (it is in use, or over a limit that cannot be raised), fd stays
// what it is: the program itself gets the whole path, and only programs patched
// offline that it starts do not find the pool.
func wellKnownFD(fd int) int {
	if _, err := unix.FcntlInt(poolFD, unix.F_GETFD, 0); err == nil {
		return fd
	}
	if unix.Dup3(fd, poolFD, unix.O_CLOEXEC) != nil {
		var lim unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Cur > poolFD {
			return fd
		}
		old := lim
		lim.Cur = poolFD + 1
		lim.Max = max(lim.Max, lim.Cur)
		// Not through the syscall package: it would take the new limit for what
		// programs started from here are to have.
		if rawSetrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
			return fd
		}
		err := unix.Dup3(fd, poolFD, unix.O_CLOEXEC)
		// The descriptor stays valid under a lower limit.
		_ = rawSetrlimit(unix.RLIMIT_NOFILE, &old)
		if err != nil {
			return fd
		}
	}
	unix.Close(fd)
	return poolFD
}

func rawSetrlimit(resource int, lim *unix.Rlimit) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(resource), uintptr(unsafe.Pointer(lim)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// path is where other processes find the pool.
func (p *pool) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.fd) }

// abandoned tells whether no other process maps the pool any more, and none will:
// the kernel seals a memory file against writing only while nobody maps it
// writable. The recorder's own mapping is given up for that moment, so nothing
// else may use the pool meanwhile. Once true, p.mem is a private copy.
//
// This sees what /proc would not show, such as children that have recorded
// nothing yet, and processes of other users and in other PID namespaces.
func (p *pool) abandoned() (bool, error) {
	if p.alone {
		return true, nil
	}
	size := len(p.mem)
	if err := unix.Munmap(p.mem); err != nil {
		return false, fmt.Errorf("unmap the buffer: %w", err)
	}
	p.mem = nil
	_, serr := unix.FcntlInt(uintptr(p.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	flags := unix.MAP_SHARED
	if serr == nil {
		p.alone, flags = true, unix.MAP_PRIVATE
	}
	var err error
	if p.mem, err = unix.Mmap(p.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		return false, fmt.Errorf("map the buffer: %w", err)
	}
	if serr != nil && serr != unix.EBUSY {
		return false, fmt.Errorf("seal the buffer: %w", serr)
	}
	return p.alone, nil
}

// close gives up the recorder's side; processes that map the pool keep it.
func (p *pool) close() {
	if p.mem != nil {
		unix.Munmap(p.mem)
		p.mem = nil
	}
	unix.Close(p.fd)
}

// word is an atomic view of a 32-bit word of the header.
func (p *pool) word(off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&p.mem[off]))
}

// word64 is an atomic view of a 64-bit word of the header.
func (p *pool) word64(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&p.mem[off]))
}

// state is the state of a chunk.
func (p *pool) state(i int) *atomic.Uint32 { return p.word(format.StatesOff + 4*i) }

// chunk is the memory of a chunk.
func (p *pool) chunk(i int) []byte {
	off := p.header + i*format.ChunkSize
	return p.mem[off : off+format.ChunkSize : off+format.ChunkSize]
}

// release gives a chunk that was claimed back, cleared in its first used bytes.
// Chunks are zero when they are taken: what a killed task left unsealed ends at
// the last word that is not.
func (p *pool) release(i, used int) {
	clear(p.chunk(i)[:used])
	p.state(i).Store(format.StateFree)
}

// announce wakes the tasks that wait for a chunk.
func (p *pool) announce() {
	p.word(format.HFreed).Add(1)
	if p.word(format.HWaiters).Load() != 0 {
		futexWake(p.word(format.HFreed))
	}
}

// shut tells all runtimes to stop recording.
func (p *pool) shut() {
	p.word(format.HClosed).Store(1)
	p.word(format.HFreed).Add(1)
	futexWake(p.word(format.HFreed))
}

// futexWake wakes everybody who waits on a word of shared memory.
func futexWake(w *atomic.Uint32) {
	const futexWake, all = 1, 1<<31 - 1
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, all, 0, 0, 0)
}

// futexWait sleeps until the word is woken, unless it is no longer val, but not
// longer than ns.
func futexWait(w *atomic.Uint32, val uint32, ns int64) {
	const futexWait = 0
	ts := unix.NsecToTimespec(ns)
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(val), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// kind and counter read a chunk's header while its task may still write to it.
func (p *pool) kind(i int) trace.ChunkKind {
	return trace.ChunkKind(le.Uint16(p.chunk(i)[format.CKind:]))
}

func (p *pool) counter(i int) uint64 { return le.Uint64(p.chunk(i)[format.CCounter:]) }

// atomicMagic reads a chunk's magic, which its task writes after the rest of the
// header.
func atomicMagic(b []byte) uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[format.CMagic])).Load()
}
