package plain

import (
	"debug/elf"

	"github.com/fentry-dev/fentry/elfio"
)

// Stacks that are swapped.
//
// Coroutines can share a stack: whoever is left has its piece of it copied elsewhere, and whoever goes on has its own copied back,
// to where it was. What is on a stack stays as it is, so the code does not care; what others know by the stack's addresses is
// wrong from then on. The function that does so can be told by how it goes on behind the copying, which compilers have no
// use for. Its stack pointer and frame pointer move by the same register (greenlet, Stackless Python), or the stack pointer is what
// a call has returned, unless that is 0 (PyPy's stacklets).

// MaySwap reports whether an image's code has bytes that can be such instructions: few others have.
func MaySwap(f *elfio.File) bool {
	m := machineOf(f)
	if m == nil {
		return false
	}
	for b := range loaded(f, elf.PF_X) {
		if m.maySwap(b) {
			return true
		}
	}
	return false
}
