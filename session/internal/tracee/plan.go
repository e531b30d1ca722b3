//go:build linux

package tracee

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/patch"
)

// PageSize is that of this machine.
var PageSize = uint64(os.Getpagesize()) // 4 KiB; on arm64 also 16 or 64 KiB

// Check refuses contradictory memory before any process is touched.
func Check(m *patch.Memory) error {
	switch {
	case len(m.RX) == 0 || m.RXAddr%PageSize != 0 || m.RXAddr+uint64(len(m.RX)) < m.RXAddr:
		return fmt.Errorf("memory: %d bytes of code at %#x", len(m.RX), m.RXAddr)
	case m.RWAddr+m.RWSize+PageSize < m.RWAddr:
		return fmt.Errorf("memory: %d bytes of data at %#x", m.RWSize, m.RWAddr)
	case !inRX(m, m.Entry, 1):
		return fmt.Errorf("memory: entry point %#x is outside of the added code", m.Entry)
	case m.PhdrAddr != 0 && (m.Phnum <= 0 || !inRX(m, m.PhdrAddr, uint64(m.Phnum)*Phentsize)):
		return fmt.Errorf("memory: %d program headers at %#x are outside of the added code", m.Phnum, m.PhdrAddr)
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

// Phentsize is the size of a program header, sizeof(Elf64_Phdr).
const Phentsize = 56

// inRX tells whether n bytes at addr lie in the added code.
func inRX(m *patch.Memory, addr, n uint64) bool {
	return addr >= m.RXAddr && addr-m.RXAddr <= uint64(len(m.RX)) && n <= uint64(len(m.RX))-(addr-m.RXAddr)
}

// spans cuts the edits into runs whose first and last byte are at most a window
// apart and which leave no gap of a page: each is read and written at once.
func spans(edits []patch.Edit) [][]patch.Edit {
	const window = 1 << 20
	var out [][]patch.Edit
	for i := 0; i < len(edits); {
		start := edits[i].Addr
		j := i + 1
		for j < len(edits) {
			prev, e := &edits[j-1], &edits[j]
			if e.Addr-(prev.Addr+uint64(len(prev.Old))) >= PageSize || e.Addr+uint64(len(e.Old))-start > window {
				break
			}
			j++
		}
		out = append(out, edits[i:j])
		i = j
	}
	return out
}

// extent is the address range a run of edits covers.
func extent(run []patch.Edit) (addr uint64, n int) {
	last := &run[len(run)-1]
	return run[0].Addr, int(last.Addr + uint64(len(last.Old)) - run[0].Addr)
}
