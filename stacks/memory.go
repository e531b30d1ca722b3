//go:build linux

package stacks

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// pageSize is the unit in which a process's memory is read; pages of any Linux are a multiple of it.
const pageSize = 4096

// pages is memory of a process: pages that have been read, and what it takes to read more.
type pages struct {
	pid    int
	closed bool // no more are read
	page   map[uint64][]byte
}

func newPages(pid int) *pages { return &pages{pid: pid, page: map[uint64][]byte{}} }

// load reads the pages of a range, as many as there are, in one system call.
func (p *pages) load(lo, hi uint64) error {
	lo &^= pageSize - 1
	hi = (hi + pageSize - 1) &^ (pageSize - 1)
	b := make([]byte, hi-lo)
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(p.pid, local, []unix.RemoteIovec{{Base: uintptr(lo), Len: len(b)}}, 0)
	if err != nil {
		return fmt.Errorf("read %#x of process %d: %w", lo, p.pid, err)
	}
	for at := 0; at+pageSize <= n; at += pageSize {
		p.page[lo+uint64(at)] = b[at : at+pageSize]
	}
	return nil
}

// at returns the page that holds an address.
func (p *pages) at(addr uint64) ([]byte, error) {
	lo := addr &^ (pageSize - 1)
	b := p.page[lo]
	if b != nil {
		return b, nil
	}
	if p.closed {
		return nil, errGone
	}
	if err := p.load(lo, lo+pageSize); err != nil {
		return nil, err
	}
	if b = p.page[lo]; b == nil {
		return nil, fmt.Errorf("read %#x of process %d: %w", lo, p.pid, unix.EFAULT)
	}
	return b, nil
}

// bytes returns n bytes at an address. It is an ehframe.Memory.
func (p *pages) bytes(addr uint64, n int) ([]byte, error) {
	out := make([]byte, 0, n)
	for len(out) < n {
		b, err := p.at(addr)
		if err != nil {
			return nil, err
		}
		b = b[addr&(pageSize-1):]
		b = b[:min(len(b), n-len(out))]
		out = append(out, b...)
		addr += uint64(len(b))
	}
	return out, nil
}

// number reads a little-endian number.
func (p *pages) number(addr uint64, size int) (uint64, error) {
	var w [8]byte
	b, err := p.bytes(addr, size)
	if err != nil {
		return 0, err
	}
	copy(w[:], b)
	return binary.LittleEndian.Uint64(w[:]), nil
}
