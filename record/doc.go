// Package record finds the places in a linked ELF image where function entries can be traced: what ftrace keeps in
// its mcount record.
//
//	img, err := elfio.Parse(b)
//	sites, err := record.Find(img, record.Options{})
//	flt, err := record.NewFilter([]string{"parse_*"}, nil)
//	for _, s := range sites {
//		if s.Traceable() && flt.Match(s.Name) {
//			// s.Addr, s.Len: what may be overwritten; s.Ret: where the return address is
//		}
//	}
//
// A site is what a compiler leaves at a function's entry: a call of a profiling function (gcc and clang -pg, with or
// without -mfentry), a nop in its place (-mnop-mcount), nops (-fpatchable-function-entry) or a sled
// (-fxray-instrument). Tables are believed first (__mcount_loc, __patchable_function_entries, xray_instr_map), then
// the calls themselves, resolved through the procedure linkage table, the global offset table and the image's
// symbols. Function starts come from the symbol tables and the unwind tables, so stripped images work.
//
// Every function the image knows of appears once in the result. One that cannot be traced carries a Reason.
//
// # What is refused
//
// Images for other machines than x86-64 and AArch64, their 32-bit ABIs (x32, ILP32), relocatable objects and core
// files: Find returns an error.
//
// # Machines
//
// What is the same on all of them is in files without their names; amd64*.go and arm64*.go mirror each other, behind
// the small interfaces of machine.go. Decoding is package code's.
//
// # Security
//
// Find works on hostile input in time and memory linear in the size of the file. It does not promise that the sites
// of a hostile image are where it says the functions are.
package record
