// Package objects finds calls of profiling functions in relocatable objects and adds the table __mcount_loc that
// lists them: ftrace's build step.
//
//	ob, err := objects.Parse(b, objects.Options{})
//	for s := range ob.Sites() {
//		// s.Section, s.Off: the first byte a tracer may overwrite
//	}
//	res, err := ob.Output()
//	if res.Output != nil {
//		_, err = res.Output.WriteTo(w) // the object with its table
//	}
//	orig, err := objects.Strip(b)          // and back
//
// A site is a call instruction whose relocation refers to mcount, _mcount, __gnu_mcount_nc or __fentry__. Calls are
// recognised for x86-64, x32, i386, arm64, arm, Thumb, ppc, ppc64, s390x, sparc64, mips, sh, riscv and loongarch; any
// other reference to such a function takes its address and is not recorded.
//
// # Security
//
// Parse, Output and Strip return errors for malformed input and take time and memory linear in its size. They do not
// promise that the calls of a hostile object are where its relocations say.
package objects
