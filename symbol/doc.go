// Package symbol turns addresses of an ELF image into functions, names people can read, and source lines.
//
//	img, err := elfio.Parse(b)
//	tab, err := symbol.New(img)
//	if fn, ok := tab.Lookup(addr); ok {
//		fmt.Println(symbol.Demangle(fn.Name, symbol.Simple))
//	}
//
// Functions come from .symtab, .dynsym and the unwind tables, one entry an address. Names are demangled when they are
// asked for, never all at once.
//
// # Security
//
// Malformed images give errors; time and memory are linear in the size of what is read.
package symbol
