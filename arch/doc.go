// Package arch is the contract between the parts of fentry that decide what to
// rewrite and the instruction sets that know how, over bytes that may live in a
// file image, in a process or anywhere else ([Memory]).
//
// What is rewritten is first planned, as edits. All of their old bytes are
// compared before the first new one is written, and a write that fails takes back
// those before it:
//
//	err := arch.Apply(mem, gap, edits)          // all of them or none
//
// ftrace's per-architecture functions are made of that. An architecture says what
// calls and nops look like ([Ftrace]):
//
//	var f arch.Ftrace = amd64.Ftrace{}
//	addr, err := f.CallAdjust(mem, word)        // a word of __mcount_loc -> the site
//	site := arch.Site{Addr: addr, Len: 5}
//	err = arch.MakeNop(f, mem, site, mcount)    // call mcount -> nop
//	err = arch.MakeCall(f, mem, site, caller)   // nop -> call ftrace_caller
//	err = arch.ModifyCall(f, mem, site, caller, regsCaller)
//
// What is found wrong is a [*Bug], with the facts of the kernel's "ftrace bug"
// report, whoever found it. A [Batch] verifies many sites before it writes the first.
package arch
