// Package arch is the contract between the parts of fentry that decide what to
// rewrite and the instruction sets that know how: ftrace's per-architecture
// functions, over bytes that may live in a file image or in a process.
//
//	var f arch.Ftrace = amd64.Ftrace{}
//	addr, err := f.CallAdjust(mem, word)        // a word of __mcount_loc -> the site
//	site := arch.Site{Addr: addr, Len: 5}
//	err = f.MakeNop(mem, site, mcount)          // call mcount -> nop
//	err = f.MakeCall(mem, site, ftraceCaller)   // nop -> call ftrace_caller
//	err = f.ModifyCall(mem, site, ftraceCaller, ftraceRegsCaller)
//
// Each of them reads the site, compares it with the one thing that may be
// there, and only then writes. What is found wrong is a *Bug, with the facts of
// the kernel's "ftrace bug" report. A Batch does the same for many sites: it
// verifies all of them before it writes the first.
package arch
