//go:build linux

package tracee

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// PageSize is that of this machine.
var PageSize = uint64(os.Getpagesize()) // 4 KiB; on arm64 also 16 or 64 KiB

// Check refuses contradictory memory before any process is touched. What was kept was checked when it was made.
func Check(m *patch.Memory) error {
	switch {
	case m.Size() == 0 || m.RXAddr%PageSize != 0 || m.RXAddr+m.Size() < m.RXAddr:
		return fmt.Errorf("memory: %d bytes of code at %#x", m.Size(), m.RXAddr)
	case m.RWAddr+m.RWSize+PageSize < m.RWAddr:
		return fmt.Errorf("memory: %d bytes of data at %#x", m.RWSize, m.RWAddr)
	case !inRX(m, m.Entry, 1):
		return fmt.Errorf("memory: entry point %#x is outside of the added code", m.Entry)
	case m.PhdrAddr != 0 && (m.Phnum <= 0 || !inRX(m, m.PhdrAddr, uint64(m.Phnum)*Phentsize)):
		return fmt.Errorf("memory: %d program headers at %#x are outside of the added code", m.Phnum, m.PhdrAddr)
	}
	if err := arch.Check(m.Edits); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	return nil
}

// Phentsize is the size of a program header, sizeof(Elf64_Phdr).
const Phentsize = 56

// inRX tells whether n bytes at addr lie in the added code.
func inRX(m *patch.Memory, addr, n uint64) bool {
	return addr >= m.RXAddr && addr-m.RXAddr <= m.Size() && n <= m.Size()-(addr-m.RXAddr)
}
