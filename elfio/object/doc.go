// Package object adds sections and local symbols to relocatable objects, as recordmcount does.
//
//	out, err := object.Extend(f, object.Additions{Symtab: i, Sections: added, Edits: edits})
//	_, err = out.WriteTo(w)
//
// Nothing existing moves: tables that grow are appended and the headers refer to the copies, so the object can be
// restored. Inserted symbols shift those after them, and every section that refers to symbols by number is rewritten.
//
// # What is refused
//
// Files that are not relocatable objects; when symbols are inserted, sections of types that may refer to symbols in
// unknown ways; sections that share bytes that change.
//
// # Hostile input
//
// As in package elfio: every offset, size and count is checked before use, and time and memory are bounded by a small
// multiple of the sizes of file and additions.
package object
