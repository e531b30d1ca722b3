// Package ehframe reads, copies and indexes unwind information: .eh_frame and .eh_frame_hdr (LSB Core, "Exception
// Frames").
//
//	t, err := ehframe.Read(f)                       // the entries of an image; kept with the file
//	for d := range t.All() { ... }                  // d.PC, d.Size, d.CIE, d.Instructions, d.LSDA
//	t, err = ehframe.Parse(f, data, addr)           // the same of data that is going to be at addr
//	hdr, err := ehframe.MergeHeader(f, at, extra)   // the image's search table with more entries
//
// An image's entries can be copied to another address, with changed call frame instructions, for unwinders and, as
// .debug_frame, for debuggers. Originals that would be found first are then hidden:
//
//	var m ehframe.Moved
//	err = m.Append(f, at, 0, t.All(), ehframe.Rules{CIE: added})
//	hdr, err = ehframe.NewHeader(f, hdrAt, at, m.Entries, extra)
//	edit, err := ehframe.Hide(f, d)
//
// Call frame instructions are copied as they are. What they say of the stack pointer and of the return address is read
// row by row (rows.go), which is also how they are cut for a copy of a part of the code; of language-specific data, the
// call sites and landing pads (lsda.go). Pieces of code that lie one behind another share an entry (run.go):
//
//	d, ok := ehframe.NewIndex(t).Find(pc)
//	rows, err := d.AppendRows(nil)
//	calls, n, err := d.AppendCallSites(f, nil, limit)
//	joined := run.Add(d.CIE, pc, size, code)        // run.FDE describes all that has been added
//
// Whoever walks the stack of a process reads entries from its memory, and whole rows:
//
//	d, ok, err := ehframe.Search(mem, header, pc)   // by the search table
//	row, err := d.FrameAt(pc)                       // where the caller's registers are
//	v, err := ehframe.Eval(row.CFA.Expr, m, false, 0)
//
// # What is refused
//
// Relocatable objects, whose ranges are still in relocations; unknown versions and augmentations; pointers relative
// to anything but themselves; search tables in an encoding other than the one all linkers use.
//
// # Hostile input
//
// Every entry is read once before a [Table] is returned, so the entries it yields are valid. Entries that overlap are
// refused where copying them would multiply their bytes. Time and memory are linear in the size of the data.
package ehframe
