// Package elfio reads ELF files, and writes changed ones without moving a byte of the original.
//
//	f, err := elfio.Parse(b)             // b may be a memory-mapped file; it is never copied or changed
//	syms, err := f.Symbols()             // .symtab; f.DynamicSymbols() works without section headers
//	rels, err := f.DynamicRelocs()       // what the dynamic linker applies
//	code, err := f.Bytes(addr, n)        // n bytes at a loaded address
//	out, err := f.Rewrite(edits)         // the file with some bytes changed: an Output
//	_, err = out.WriteTo(w)
//
// Both classes, both byte orders, every file type and extended numbering are understood. [File.Encode] writes changed
// headers back; unchanged ones come back byte for byte. Tables can be read all at once, or in place, entry by entry
// ([SymbolTable], [RelocTable]).
//
// Subpackages build on this one:
//
//	elfio/ehframe   unwind information: entries of .eh_frame, its search table, copies for another address
//	elfio/inject    segments, sections and symbols added to a linked image, and taken out again
//	elfio/link      a relocatable object placed and relocated for addresses inside an image
//	elfio/object    sections and symbols added to a relocatable object
//	elfio/ar        archives of objects
//
// # What is refused
//
// Files that are not ELF, and headers that contradict the file: tables outside it, entries of the wrong size, names
// outside their table. Tables are read only when asked for, so a file with a damaged one can be parsed. Compressed
// sections are not expanded.
//
// # Hostile input
//
// Every offset, size and count is checked before use, with a [FormatError] that names the structure and its file
// offset. Time and memory are bounded by a small multiple of the file's size, whatever its headers say. There is no
// promise that an image with contradictory headers is read as a particular loader would.
package elfio
