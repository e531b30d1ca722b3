package objects

import (
	"debug/elf"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
)

// listed are the names, beside those that begin with .text, of the sections recordmcount records: those of the Linux
// kernel that stay in memory.
var listed = [...]string{
	".init.text", ".ref.text", ".sched.text", ".spinlock.text", ".irqentry.text", ".softirqentry.text", ".kprobes.text",
	".cpuidle.text",
}

// Listed reports whether the sites of a section with the given name are recorded without Options.AllExec.
func Listed(name string) bool {
	if strings.HasPrefix(name, ".text") {
		return true
	}
	for _, n := range listed {
		if n == name {
			return true
		}
	}
	return false
}

// isCode reports whether a section holds instructions.
func isCode(s *elfio.Section) bool {
	return s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_EXECINSTR != 0
}
