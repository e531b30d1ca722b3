// Package object adds sections and local symbols to relocatable objects, as recordmcount does.
//
//	out, err := object.Extend(f, object.Additions{Symtab: i, Sections: added, Edits: edits})
//	_, err = out.WriteTo(w)
//
// Nothing that is there moves: what grows is appended and the headers refer to the copy, so the object can be restored.
// Symbols that are inserted shift those behind them, and every section that refers to symbols by number is rewritten.
//
// # What is refused
//
// Files that are not relocatable objects; sections of types that may refer to symbols in a way that is not known, where
// symbols are inserted; sections that share the bytes that change.
//
// # Hostile input
//
// As in package elfio: every offset, size and count is checked before use, and time and memory are bounded by a small
// multiple of the sizes of file and additions.
package object
