// Package inject adds segments, sections, symbols and dynamic relocations to linked ELF images, and takes them out
// again.
//
// The addresses of what is added are known before its contents are, so code can be linked for them:
//
//	size, align, err := link.WritableSize(obj)          // obj: a relocatable object, parsed
//	l, err := inject.NewLayout(f, inject.Memory{RW: size, RWAlign: align})
//	linked, err := link.Object(obj, link.Options{RX: l.RX, RW: l.RW, Symbols: known})
//	dyn, err := inject.ExtendDynamic(f, at, relocs)     // if the dynamic linker has something to do
//	hdr, err := ehframe.MergeHeader(f, at, linked.Frames.Entries())
//	out, err := inject.Into(f, inject.Injection{Layout: l, RX: code, Entry: linked.Symbols["start"], ...})
//	orig, err := inject.Undo(out.Bytes())               // byte for byte
//
// Everything added follows the original file: a read-execute segment, then copies of the tables that grew (.symtab,
// .strtab, .shstrtab), the undo record, and the new section header table. Zeroed memory is added by growing the last
// writable segment. The program header table keeps its place and size; [Layout.Slot] says what gave way. strip,
// objcopy, eu-strip, llvm-strip and patchelf keep such images intact because every added byte is in a section.
//
// An injected image has a section .fentry.undo; one without section headers ends with the same record, by which [Described]
// knows what was added by name. Tools that rewrite the file make it unusable, which [Undo] reports.
//
// # What is refused
//
// A second injection ([ErrInjected]); relocatable objects, core files, separate debug files and prelinked images; a
// program header table without a slot to spare.
//
// # Hostile input
//
// As in package elfio: every offset, size and count is checked before use, the undo record's too, and time and memory
// are bounded by a small multiple of the file's size. The result of Undo has the checksum that the record states, but
// a forger can write any record.
package inject
