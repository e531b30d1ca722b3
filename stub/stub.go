package stub

import (
	"debug/elf"
	_ "embed"
	"fmt"
)

//go:generate go run ./internal/mkobject

//go:embed amd64.o
var amd64Object []byte

//go:embed arm64.o
var arm64Object []byte

//go:embed arm64-shared.o
var arm64Shared []byte

// SharedObject returns the runtime for shared objects, which is that of [Object] where the running thread is found
// without thread-local memory.
func SharedObject(m elf.Machine) ([]byte, error) {
	if m == elf.EM_AARCH64 {
		return arm64Shared, nil
	}
	return Object(m)
}

// Object returns the runtime for a machine: a relocatable ELF object that is position-independent, has only
// PC-relative relocations and zeroed writable memory, and needs no library. The slice must not be changed.
func Object(m elf.Machine) ([]byte, error) {
	switch m {
	case elf.EM_X86_64:
		return amd64Object, nil
	case elf.EM_AARCH64:
		return arm64Object, nil
	}
	return nil, fmt.Errorf("no runtime for machine %v", m)
}
