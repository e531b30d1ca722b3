// Package elfio reads ELF images and adds to linked ones without moving a byte of what is there.
//
//	f, err := elfio.Parse(b)             // b may be a memory-mapped file; it is never copied or changed
//	syms, err := f.Symbols()
package elfio
