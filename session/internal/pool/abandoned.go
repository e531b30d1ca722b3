//go:build linux

package pool

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrSealed is the error of [Pool.Abandoned] for a pool that a program has sealed, so
// that nobody can tell by seals any more whether it is in use.
var ErrSealed = errors.New("a program has sealed the buffer")

// Abandoned tells whether no other process maps the pool any more, and none will:
// the kernel seals a memory file against writing only while nobody maps it
// writable. The recorder's own mapping is given up for that moment, so nothing
// else may use the pool meanwhile. Once true, p.Mem is a private copy.
//
// This sees what /proc would not show, such as children that have recorded
// nothing yet, and processes of other users and in other PID namespaces.
//
// A traced process can add seals, too. F_SEAL_SEAL makes the question unanswerable, and
// after F_SEAL_FUTURE_WRITE a mapping that was given up could not be had back; so both are
// looked for before ([ErrSealed]). If one comes at the very moment, the pool is kept as
// a private copy, and the session is over as far as its programs are concerned.
func (p *Pool) Abandoned() (bool, error) {
	if p.alone {
		return true, nil
	}
	if seals, err := unix.FcntlInt(uintptr(p.FD), unix.F_GET_SEALS, 0); err != nil || seals&^sizeSeals != 0 {
		return false, errors.Join(ErrSealed, err)
	}
	size := len(p.Mem)
	if err := unix.Munmap(p.Mem); err != nil {
		return false, fmt.Errorf("unmap the buffer: %w", err)
	}
	p.Mem = nil
	_, serr := unix.FcntlInt(uintptr(p.FD), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	var err error
	if serr != nil {
		p.Mem, err = unix.Mmap(p.FD, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if p.Mem == nil && (err == nil || err == unix.EPERM) {
		p.alone = true
		p.Mem, err = unix.Mmap(p.FD, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	}
	if err != nil {
		return false, fmt.Errorf("map the buffer: %w", err)
	}
	if serr != nil && serr != unix.EBUSY {
		return p.alone, fmt.Errorf("seal the buffer: %w", serr)
	}
	return p.alone, nil
}
