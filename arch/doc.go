// Package arch is the contract between the parts of fentry that decide what to rewrite and the instruction sets that
// know how. The bytes may be in a file, in a process or anywhere else ([Memory]).
//
// Changes are planned as edits first. All old bytes are compared before the first new one is written, and if a write
// fails, the writes before it are reverted:
//
//	err := arch.Apply(mem, gap, edits)          // all of them or none
//
// ftrace's per-architecture functions are built on that. An architecture says what calls and nops look like
// ([Ftrace]):
//
//	var f arch.Ftrace = amd64.Ftrace{}
//	addr, err := f.CallAdjust(mem, word)        // a word of __mcount_loc -> the site
//	site := arch.Site{Addr: addr, Len: 5}
//	err = arch.MakeNop(f, mem, site, mcount)    // call mcount -> nop
//	err = arch.MakeCall(f, mem, site, caller)   // nop -> call ftrace_caller
//	err = arch.ModifyCall(f, mem, site, caller, regsCaller)
//
// A site that is not as expected is reported as a *[Bug], with the facts of the kernel's "ftrace bug" report. A
// [Batch] verifies all of its sites before it writes the first.
package arch
