// Package link places a relocatable object at addresses inside an image: a linker for one object, whose output works
// wherever the image is loaded.
//
//	size, align, err := link.WritableSize(obj)            // before addresses are known
//	l, err := link.Object(obj, link.Options{RX: rx, RW: rw, Symbols: known})
//	l.RX                                                  // code, then read-only data, then unwind data
//	l.Symbols["start"]                                    // addresses
//
// Objects of x86-64 and AArch64 can be linked. Loads from the GOT become computations of addresses; only symbols that
// the dynamic linker must supply get slots ([Options.Import]).
//
// # What is refused
//
// Objects that are not position-independent, or hold initialised writable data or constructors; undefined symbols
// that are not supplied; thread-local variables, except zeroed ones of AArch64 in the local-exec model. An error
// names section, offset, relocation and symbol.
//
// # Hostile input
//
// Every relocation's place is checked to be in its section, every value to fit its field. A linked object has at most
// 256 MiB.
package link
