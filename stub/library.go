package stub

import (
	"bytes"
	"debug/elf"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
)

// The library is the same runtime for programs that are linked with it, not patched. It is
// one object, in an archive of one member: parts of it would be taken or left by linkers as
// the program names them, but what compilers call needs all of it.

//go:embed amd64-classic.o
var amd64Classic []byte

//go:embed arm64-classic.o
var arm64Classic []byte

//go:embed src/fentry.h
var header []byte

// Header returns the C header fentry.h, for programs that set their own callbacks. The slice must not be changed.
func Header() []byte { return header }

// LibraryObject returns the classic tracer for a machine: a relocatable ELF object to be linked with programs
// compiled with -pg, with or without -mfentry. It defines the functions that such code calls, mcount, _mcount and
// __fentry__ (only _mcount on arm64), and everything else that fentry.h declares; all other names in it are local.
// The slice must not be changed.
func LibraryObject(m elf.Machine) ([]byte, error) {
	switch m {
	case elf.EM_X86_64:
		return amd64Classic, nil
	case elf.EM_AARCH64:
		return arm64Classic, nil
	}
	return nil, fmt.Errorf("no library for machine %v", m)
}

// Library returns LibraryObject's object as a static library, in the ar format of System V and GNU. As with "ar D",
// it has no times and no owners, so the result is always the same.
func Library(m elf.Machine) ([]byte, error) {
	obj, err := LibraryObject(m)
	if err != nil {
		return nil, err
	}
	names, err := defined(obj)
	if err != nil {
		return nil, err
	}
	return archive("fentry.o", obj, names), nil
}

// defined returns the names that linkers look for in an object.
func defined(obj []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(obj))
	if err != nil {
		return nil, err
	}
	syms, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range syms {
		if elf.ST_BIND(s.Info) != elf.STB_LOCAL && s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("library: the object defines nothing")
	}
	return names, nil
}

// archive writes an ar archive with one member. In front of it is the index that
// linkers want, the member named "/": big-endian, the number of names, for each
// the offset of its member's header, and the names, each with a NUL.
func archive(name string, contents []byte, names []string) []byte {
	const magic = "!<arch>\n"
	const head = 60 // bytes of a member's header
	index := binary.BigEndian.AppendUint32(nil, uint32(len(names)))
	size := 4 + 4*len(names)
	for _, n := range names {
		size += len(n) + 1
	}
	member := len(magic) + head + size + size%2
	for range names {
		index = binary.BigEndian.AppendUint32(index, uint32(member))
	}
	for _, n := range names {
		index = append(append(index, n...), 0)
	}
	b := []byte(magic)
	add := func(name string, mode int, p []byte) {
		b = fmt.Appendf(b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", name, 0, 0, 0, mode, len(p))
		b = append(b, p...)
		if len(p)%2 != 0 {
			b = append(b, '\n')
		}
	}
	add("/", 0, index)
	add(name+"/", 0o644, contents)
	return b
}
