// Package machine is the one table of the instruction sets whose programs fentry traces: what ELF, Go, people,
// compilers, Debian and qemu call each. What such a program consists of is known by the packages that are listed in
// CONTRIBUTING.md.
package machine

import (
	"debug/elf"
	"runtime"
	"strings"
)

// A Machine has the names of one instruction set.
type Machine struct {
	ELF    elf.Machine
	Go     string // GOARCH, and the names of directories and objects here: amd64
	Title  string // as people write it: x86-64
	Triple string // of its compilers, and of the directories of its libraries: x86_64-linux-gnu
	Debian string // in names of packages: amd64
}

// All are the machines, the most common first.
var All = []Machine{
	{elf.EM_X86_64, "amd64", "x86-64", "x86_64-linux-gnu", "amd64"},
	{elf.EM_AARCH64, "arm64", "aarch64", "aarch64-linux-gnu", "arm64"},
}

// Of returns the machine of an ELF header. ok is false for those whose programs are not traced.
func Of(e elf.Machine) (m Machine, ok bool) {
	for _, m := range All {
		if m.ELF == e {
			return m, true
		}
	}
	return Machine{}, false
}

// Named returns the machine that Go or ELF calls so: amd64 or x86_64.
func Named(name string) (m Machine, ok bool) {
	for _, m := range All {
		if m.Go == name || Name(m.ELF) == name {
			return m, true
		}
	}
	return Machine{}, false
}

// Host returns the machine this process runs on. ok is false where no programs are traced.
func Host() (m Machine, ok bool) { return Named(runtime.GOARCH) }

// Name is the name of any ELF machine in files and messages: its constant in lower case without the prefix, x86_64.
func Name(e elf.Machine) string { return strings.ToLower(strings.TrimPrefix(e.String(), "EM_")) }

// Title is the name of any ELF machine as people write it.
func Title(e elf.Machine) string {
	if m, ok := Of(e); ok {
		return m.Title
	}
	return Name(e)
}

// Emulator is the command of qemu-user that runs the machine's programs elsewhere.
func (m Machine) Emulator() string { return "qemu-" + Name(m.ELF) }

// Sysroot is where Debian's cross compilers have the machine's libraries.
func (m Machine) Sysroot() string { return "/usr/" + m.Triple }

// Libraries is the Debian package with the C library of Sysroot.
func (m Machine) Libraries() string { return "libc6-" + m.Debian + "-cross" }
