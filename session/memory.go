//go:build linux

package session

import (
	"fmt"
	"os"
)

var pageSize = uint64(os.Getpagesize()) // 4 KiB; on arm64 also 16 or 64 KiB

// check refuses contradictory memory before any process is touched.
func (m *Memory) check() error {
	switch {
	case len(m.RX) == 0 || m.RXAddr%pageSize != 0 || m.RXAddr+uint64(len(m.RX)) < m.RXAddr:
		return fmt.Errorf("memory: %d bytes of code at %#x", len(m.RX), m.RXAddr)
	case m.RWAddr+m.RWSize+pageSize < m.RWAddr:
		return fmt.Errorf("memory: %d bytes of data at %#x", m.RWSize, m.RWAddr)
	case !m.inRX(m.Entry, 1):
		return fmt.Errorf("memory: entry point %#x is outside of the added code", m.Entry)
	case m.PhdrAddr != 0 && (m.Phnum <= 0 || !m.inRX(m.PhdrAddr, uint64(m.Phnum)*phentsize)):
		return fmt.Errorf("memory: %d program headers at %#x are outside of the added code", m.Phnum, m.PhdrAddr)
	case m.Phdrs != nil && len(m.Phdrs) != m.Phnum*phentsize:
		return fmt.Errorf("memory: %d program headers in %d bytes", m.Phnum, len(m.Phdrs))
	}
	end := uint64(0)
	for i := range m.Edits {
		e := &m.Edits[i]
		if len(e.Old) == 0 || len(e.Old) != len(e.New) {
			return fmt.Errorf("memory: edit at %#x replaces %d bytes by %d", e.Addr, len(e.Old), len(e.New))
		}
		if e.Addr < end {
			return fmt.Errorf("memory: edit at %#x overlaps the one before it or is not in order", e.Addr)
		}
		end = e.Addr + uint64(len(e.Old))
		if end < e.Addr {
			return fmt.Errorf("memory: edit at %#x leaves the address space", e.Addr)
		}
	}
	return nil
}

const phentsize = 56 // sizeof(Elf64_Phdr)

// inRX tells whether n bytes at addr lie in the added code.
func (m *Memory) inRX(addr, n uint64) bool {
	return addr >= m.RXAddr && addr-m.RXAddr <= uint64(len(m.RX)) && n <= uint64(len(m.RX))-(addr-m.RXAddr)
}

// code is what is written at RXAddr, program headers included.
func (m *Memory) code() []byte {
	if m.Phdrs == nil || m.PhdrAddr == 0 {
		return m.RX
	}
	b := append([]byte(nil), m.RX...)
	copy(b[m.PhdrAddr-m.RXAddr:], m.Phdrs)
	return b
}

// spans cuts the edits into runs whose first and last byte are at most a window
// apart and which leave no gap of a page: each is read and written at once.
func (m *Memory) spans() [][]Edit {
	const window = 1 << 20
	var out [][]Edit
	for i := 0; i < len(m.Edits); {
		start := m.Edits[i].Addr
		j := i + 1
		for j < len(m.Edits) {
			prev, e := &m.Edits[j-1], &m.Edits[j]
			if e.Addr-(prev.Addr+uint64(len(prev.Old))) >= pageSize || e.Addr+uint64(len(e.Old))-start > window {
				break
			}
			j++
		}
		out = append(out, m.Edits[i:j])
		i = j
	}
	return out
}

// extent is the address range a run of edits covers.
func extent(run []Edit) (addr uint64, n int) {
	last := &run[len(run)-1]
	return run[0].Addr, int(last.Addr + uint64(len(last.Old)) - run[0].Addr)
}

// MismatchError says that a process does not hold the image a plan was made for.
type MismatchError struct {
	Addr     uint64 // link-time address
	Actual   []byte
	Expected []byte
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("failed to modify %#x: actual %s, expected %s", e.Addr, colons(e.Actual), colons(e.Expected))
}

// colons prints bytes as ftrace's bug reports do.
func colons(b []byte) string {
	var s []byte
	for i, c := range b {
		if i > 0 {
			s = append(s, ':')
		}
		s = fmt.Appendf(s, "%02x", c)
	}
	return string(s)
}
