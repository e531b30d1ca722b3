package stub

import (
	"debug/elf"
	_ "embed"
	"fmt"
)

//go:generate go run ./internal/mkobject

//go:embed amd64.o
var amd64Object []byte

//go:embed amd64-guest.o
var amd64Guest []byte

//go:embed arm64.o
var arm64Object []byte

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

// GuestObject returns the part of the runtime for an image, such as a shared object, of a process that has the
// runtime in another image: fast paths, which the image's thunks call, and the symbol fentry_image, to be filled in
// as for Object. fentry_join must be called before any function of the image: it finds the home's runtime and
// registers the image. fentry_leave must be called before the image is unmapped. If there is no home, or its Config
// asks for what the thunks were not made for, the image is not traced. The slice must not be changed.
func GuestObject(m elf.Machine) ([]byte, error) {
	if m != elf.EM_X86_64 {
		return nil, fmt.Errorf("no runtime for other images than the executable on machine %v", m)
	}
	return amd64Guest, nil
}
