// Package record finds the places in a linked ELF image where function entries can be traced: what ftrace keeps in
// its mcount record.
//
//	img, err := elfio.Parse(b)
//	sites, err := record.Find(img, record.Options{})
//	flt, err := record.NewFilter([]string{"parse_*"}, nil)
//	for _, s := range sites {
//		if s.Traceable() && flt.Match(s.Name) {
//			// s.Addr, s.Len: bytes that may be overwritten; s.Ret: where the return address is
//		}
//	}
//
// A site is what a compiler leaves at a function's entry: a call of a profiling function (gcc and clang -pg, with or
// without -mfentry), a nop in its place (-mnop-mcount), nops (-fpatchable-function-entry) or a sled
// (-fxray-instrument). Sites come first from tables (__mcount_loc, __patchable_function_entries, xray_instr_map),
// then from the calls themselves, resolved through the procedure linkage table, the global offset table and the
// image's symbols. Function starts come from the symbol tables and the unwind tables, so stripped images work.
//
// Calls into libraries are sites of their own (Options.LibraryCalls): the jumps of the stubs that linkers make for them,
// named function@plt.
//
// Every function known to the image appears once in the result. One that cannot be traced has a Reason.
//
// # What is refused
//
// Find returns an error for images of machines other than x86-64 and AArch64, for their 32-bit ABIs (x32, ILP32),
// relocatable objects and core files.
//
// # Machines
//
// Code common to all machines is in files without a machine's name; amd64*.go and arm64*.go mirror each other, behind
// the small interfaces of machine.go. Package code decodes instructions.
//
// # Security
//
// Find takes time and memory linear in the size of the file, whatever it contains. It does not promise that the
// functions of a hostile image are where its tables say.
package record
