package patch

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/inject"
)

// Shared objects.
//
// A shared object is patched like a program, but nothing begins at its entry point: it has none, or one that is seldom
// used, as the C library's, which prints its version. So that stays, and the dynamic loader starts the runtime. glibc's
// does when it relocates the object, by the same relocation as in programs, which is before anything in the object
// runs. musl's refuses such relocations, and others need not know them: they call DT_INIT, before the object's
// constructors. If there is no room in the dynamic section for the one, the other serves too. An object in which neither
// can be had is refused, because nothing would ever start.
//
// What runs first in a process is the home of all images there, and cannot be unmapped. Which object that is nobody
// knows beforehand, so all are marked as those that stay (DF_1_NODELETE): dlclose does not unload them. That is also what
// lets guests do without an end: no loader says whether it runs an object's destructors because the object goes or
// because the process does, and in the second case its functions are still called.

// A library is what is to be known of a shared object.
type library struct {
	init   uint64 // DT_INIT, 0 if it has none
	flags1 uint64 // DT_FLAGS_1
	glibc  bool   // glibc's dynamic loader loads it
	musl   bool   // musl's does, which never unloads anything
}

// df1NoDelete is DF_1_NODELETE.
const df1NoDelete = uint64(elf.DF_1_NODELETE)

// readLibrary returns what is known of a shared object, nil for a program. Both have the same type if programs can be
// loaded anywhere; but linkers leave room for debuggers (DT_DEBUG) in programs only, or mark them.
func readLibrary(f *elfio.File) (*library, error) {
	if f.Header.Type != elf.ET_DYN {
		return nil, nil
	}
	dyn, err := f.Dynamic()
	if err != nil || dyn == nil {
		return nil, err
	}
	value := func(t elf.DynTag) uint64 {
		if i := slices.IndexFunc(dyn, func(d elfio.Dyn) bool { return d.Tag == t }); i >= 0 {
			return dyn[i].Val
		}
		return 0
	}
	l := &library{init: value(elf.DT_INIT), flags1: value(elf.DT_FLAGS_1)}
	debug := slices.ContainsFunc(dyn, func(d elfio.Dyn) bool { return d.Tag == elf.DT_DEBUG })
	if debug || elf.DynFlag1(l.flags1)&elf.DF_1_PIE != 0 {
		return nil, nil
	}
	names, _ := f.From(value(elf.DT_STRTAB))
	for _, d := range dyn {
		if (d.Tag != elf.DT_NEEDED && d.Tag != elf.DT_SONAME) || d.Val >= uint64(len(names)) {
			continue
		}
		name, _, _ := bytes.Cut(names[d.Val:], []byte{0})
		l.loadedBy(string(name))
	}
	return l, nil
}

// loadedBy takes notice of a library that the object needs, or of its own name.
func (l *library) loadedBy(name string) {
	switch {
	case name == "libc.so.6" || strings.HasPrefix(name, "ld-linux"):
		l.glibc = true
	case strings.HasPrefix(name, "libc.musl-") || name == "libc.so":
		l.musl = true
	}
}

// startLibrary makes the dynamic loader start the runtime of a shared object, and keep the object.
func (l *layout) startLibrary() error {
	lib := l.p.lib
	var keep []elfio.Dyn
	if elf.DynFlag1(lib.flags1)&elf.DF_1_NODELETE == 0 {
		keep = []elfio.Dyn{{Tag: elf.DT_FLAGS_1, Val: lib.flags1 | df1NoDelete}}
	}
	if lib.glibc {
		irel, err := l.symbol("fentry_irel")
		if err != nil {
			return err
		}
		if l.extendDynamic(irel, keep) == nil {
			return nil
		}
	}
	name := "fentry_init_only"
	if lib.init != 0 {
		name = "fentry_init_first"
	}
	start, err := l.symbol(name)
	if err != nil {
		return err
	}
	begin := elfio.Dyn{Tag: elf.DT_INIT, Val: start}
	err = l.extendDynamic(0, append([]elfio.Dyn{begin}, keep...))
	if err != nil && lib.musl {
		err = l.extendDynamic(0, []elfio.Dyn{begin})
	}
	if err != nil {
		return fmt.Errorf("nothing would start the tracer in this shared object: %w", err)
	}
	return nil
}

// extendDynamic sets entries of the dynamic section and, if resolver is not 0, adds a relocation that calls it.
func (l *layout) extendDynamic(resolver uint64, entries []elfio.Dyn) error {
	at := alignUp(l.end(), 8)
	var relocs []inject.DynReloc
	if resolver != 0 {
		relocs = []inject.DynReloc{
			{Off: l.relWord, Type: l.p.m.facts().irelative, Irelative: true, Addend: int64(resolver)},
		}
	}
	x, err := inject.ExtendDynamic(l.p.file, at, relocs, entries...)
	if err != nil {
		return err
	}
	if len(x.Data) > 0 {
		l.align(8)
		l.rx = append(l.rx, x.Data...)
		l.made(piece{name: "relocations", addr: at, align: 8, owner: nobody})
	}
	l.dynamic, l.moved = x.Edits, x.Moved
	return nil
}
