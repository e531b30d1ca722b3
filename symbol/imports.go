package symbol

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
)

// Functions of other images.
//
// Code calls them through words of its own image, which the dynamic linker fills. Nothing but the relocation that has
// it filled says what a word is of: section headers and .symtab can be gone, and a call names the word only. So a call
// into a library is known by its word, for those who look for calls and for those who show names.

// An Import is a word of an image that holds the address of another image's function while a program runs.
type Import struct {
	Slot uint64 // address of the word
	Name string // of the function's symbol, raw and without a version
}

// CallName is the name of calls through the word: that of the function, and @plt behind it.
func (m Import) CallName() string { return m.Name + CallSuffix }

// Compare orders imports by the addresses of their words.
func (m Import) Compare(slot uint64) int { return cmp.Compare(m.Slot, slot) }

// CallSuffix is what the names of calls into libraries end with, as in disassemblies.
const CallSuffix = "@plt"

// Imports returns the words of an image that functions of others are called through, sorted by address, each once. A
// word for a function that the image itself defines is not among them, although others can take that function's place.
func Imports(f *elfio.File) ([]Import, error) {
	relocs, err := f.DynamicRelocs()
	if err != nil {
		return nil, err
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var out []Import
	for i := range relocs {
		r := &relocs[i]
		if !f.IsSlot(r.Type) || r.Addend != 0 || r.Sym == 0 || uint64(r.Sym) > uint64(len(syms)) {
			continue
		}
		s := &syms[r.Sym-1]
		if t := s.Type(); s.Name == "" || s.Defined() || t == elf.STT_OBJECT || t == elf.STT_TLS {
			continue
		}
		out = append(out, Import{r.Off, BaseName(s.Name)})
	}
	slices.SortStableFunc(out, func(a, b Import) int { return cmp.Compare(a.Slot, b.Slot) })
	return slices.CompactFunc(out, func(a, b Import) bool { return a.Slot == b.Slot }), nil
}
