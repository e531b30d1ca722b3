// Package elfio reads ELF images and adds to linked ones without moving a byte of what is there.
//
// # Reading
//
//	f, err := elfio.Parse(b)             // b may be a memory-mapped file; it is never copied or changed
//	syms, err := f.Symbols()             // .symtab; f.DynamicSymbols() works without section headers
//	fdes, err := f.FDEs()                // function ranges from .eh_frame
//	code, err := f.Bytes(addr, n)        // n bytes at a loaded address
//
// Both classes, both byte orders, every file type and extended numbering are understood. [File.HeaderEdits] and
// [File.Encode] write changed headers back; unchanged ones come back byte for byte.
//
// # Adding
//
// The addresses of what is added are known before its contents are, so code can be linked for them:
//
//	size, align, err := elfio.WritableSize(obj)        // obj: a relocatable object, parsed
//	l, err := f.Layout(size, align)                    // l.RX, l.RW: addresses
//	linked, err := elfio.LinkObject(obj, elfio.LinkOptions{RX: l.RX, RW: l.RW, Symbols: known})
//	dyn, err := f.ExtendDynamic(at, relocs)            // if the dynamic linker has something to do
//	hdr, err := elfio.MergeEhFrameHdr(f, at, linked.EhEntries)
//	out, err := f.Inject(elfio.Injection{Layout: l, RX: code, Entry: linked.Symbols["start"], ...})
//	orig, err := elfio.Uninject(out)                   // byte for byte
//
// Everything added follows the original file: a read-execute segment, then copies of the tables that grew (.symtab,
// .strtab, .shstrtab), the undo record, and the new section header table. Zeroed memory is added by growing the last
// writable segment. The program header table stays at its place and in its size; [Layout.Slot] says what gave way.
// strip, objcopy, eu-strip, llvm-strip and patchelf keep such images intact, because every added byte is in a section.
//
// An injected image has a section .fentry.undo. Tools that rewrite the file make it unusable, which Uninject says.
//
// # What is refused
//
// A second injection ([ErrInjected]); relocatable objects, core files, separate debug files and prelinked images; a
// program header table without a slot to give; objects to link that are not position-independent, or hold initialised
// writable data, thread-local variables or constructors.
//
// # Hostile input
//
// Every offset, size and count is checked before use, with an error that names the structure and its file offset. Time
// and memory are bounded by a small multiple of the file's size, whatever its headers say. What is not promised: that
// an image with contradictory headers is read as a particular loader would.
package elfio
