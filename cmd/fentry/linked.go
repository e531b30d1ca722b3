package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// linkedID is the image id of a program that was linked with the tracer: FNV-1a of
// what does not change when it is stripped. The tracer computes the same.
func linkedID(f *elfio.File) trace.ImageID {
	h := fnv.New64a()
	raw, at, n := f.Raw(), f.Header.Phoff, uint64(len(f.Progs))*56
	h.Write(raw[16:32]) // type, machine, version, entry point
	if at <= uint64(len(raw)) && n <= uint64(len(raw))-at {
		h.Write(raw[at : at+n])
	}
	h.Write(f.BuildID())
	return trace.ImageID(h.Sum64())
}

// linkedTable is the functions of such a program: an id is where in the image the
// call of the tracer is.
type linkedTable struct {
	base  uint64 // of the ELF header, as linked
	funcs []trace.Func
}

// Func finds the function that the call belongs to. The call is at most 3 bytes
// behind (id-1)*4 and 5 bytes long, so that the last of these bytes is in it.
func (t *linkedTable) Func(id uint32) (trace.Func, bool) {
	if id == 0 {
		return trace.Func{}, false
	}
	at := t.base + uint64(id-1)*4 + 3
	i, ok := slices.BinarySearchFunc(t.funcs, at, func(f trace.Func, at uint64) int { return cmp.Compare(f.Addr, at) })
	if !ok {
		i--
	}
	if i < 0 || t.funcs[i].Size > 0 && at-t.funcs[i].Addr >= t.funcs[i].Size {
		return trace.Func{}, false
	}
	f := t.funcs[i]
	f.Kind = "linked"
	return f, true
}

// readLinked finds the functions of a program that was linked with the tracer.
func readLinked(path string, im trace.Image) (trace.SymTable, error) {
	image, done, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	defer done()
	f, err := elfio.Parse(image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !f.Is64() || linkedID(f) != im.ID {
		return nil, fmt.Errorf("%s: not the program that was traced: it has been built again since", path)
	}
	tab, err := symbol.New(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t := new(linkedTable)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Off == 0 {
			t.base = p.Vaddr
		}
	}
	for _, fn := range tab.Funcs() {
		t.funcs = append(t.funcs, trace.Func{Name: strings.Clone(fn.Name), Addr: fn.Addr, Size: fn.Size})
	}
	slices.SortFunc(t.funcs, func(a, b trace.Func) int { return cmp.Compare(a.Addr, b.Addr) })
	return t, nil
}
