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
// knows beforehand, so all are marked as those that stay (DF_1_NODELETE): dlclose does not unload them. Only who knows
// that another image will be the home leaves the mark away (Options.Unloads).
//
// No loader says whether it runs an object's destructors because the object goes or because the process does, and in the
// second case its functions are still called; nor does it say that loading has failed behind the relocation of an object.
// So the home is told when an object is initialised and finalised (DT_INIT, DT_FINI), and touches its memory only between
// the two (stub/src/life.c). Where there is no room for these entries, the object stays.

// A library is what is to be known of a shared object.
type library struct {
	init   uint64 // DT_INIT, 0 if it has none
	fini   uint64 // DT_FINI
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
	l := &library{init: value(elf.DT_INIT), fini: value(elf.DT_FINI), flags1: value(elf.DT_FLAGS_1)}
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

// startLibrary makes the dynamic loader start the runtime of a shared object, and keep the object, or tell the runtime
// when it goes.
func (l *layout) startLibrary() error {
	lib := l.p.lib
	var keep []elfio.Dyn
	if elf.DynFlag1(lib.flags1)&elf.DF_1_NODELETE == 0 {
		keep = []elfio.Dyn{{Tag: elf.DT_FLAGS_1, Val: lib.flags1 | df1NoDelete}}
	}
	begin, err := l.hook(elf.DT_INIT, lib.init, "fentry_init")
	if err != nil {
		return err
	}
	end, err := l.hook(elf.DT_FINI, lib.fini, "fentry_fini")
	if err != nil {
		return err
	}
	var irel uint64
	if lib.glibc {
		if irel, err = l.symbol("fentry_irel"); err != nil {
			return err
		}
	}
	stages := []elfio.Dyn{begin, end}
	var ways []startWay
	if irel != 0 {
		if l.p.Options.Unloads {
			ways = append(ways, startWay{irel, stages, true})
		}
		ways = append(ways, startWay{irel, slices.Concat(stages, keep), true}, startWay{irel, keep, false})
	}
	if l.p.Options.Unloads {
		ways = append(ways, startWay{0, stages, true})
	}
	ways = append(ways, startWay{0, slices.Concat(stages, keep), true}, startWay{0, append([]elfio.Dyn{begin}, keep...), false})
	if lib.musl {
		ways = append(ways, startWay{0, []elfio.Dyn{begin}, false})
	}
	for _, w := range ways {
		if err = l.extendDynamic(w.irel, w.entries); err == nil {
			l.stages = w.stages
			return nil
		}
	}
	return fmt.Errorf("nothing would start the tracer in this shared object: %w", err)
}

// startWay is a way to have a dynamic loader start the runtime: by a relocation that calls irel, or else by the entries.
type startWay struct {
	irel    uint64
	entries []elfio.Dyn
	stages  bool // the runtime is told how far the object is
}

// hook is a dynamic entry that leads to a routine of the runtime, and from there to what it was, if it was there.
func (l *layout) hook(tag elf.DynTag, was uint64, routine string) (elfio.Dyn, error) {
	name := routine + "_only"
	if was != 0 {
		name = routine + "_first"
	}
	at, err := l.symbol(name)
	return elfio.Dyn{Tag: tag, Val: at}, err
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
