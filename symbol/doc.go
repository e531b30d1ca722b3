// Package symbol turns addresses of an ELF image into functions, names people can read, and source lines.
//
//	img, err := elfio.Parse(b)
//	tab, err := symbol.New(img)
//	if fn, ok := tab.Lookup(addr); ok {
//		fmt.Println(symbol.Demangle(fn.Name, symbol.Simple))
//	}
//
// Functions come from .symtab, .dynsym and the unwind tables, with one entry per address. The .symtab of an image that
// was stripped is that of its separate debug file (NewWith, Open). Names are demangled on demand, never all at once.
//
// # Security
//
// Malformed images give errors; time and memory are linear in the size of the files read.
package symbol
