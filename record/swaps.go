package record

import (
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/record/plain"
)

// MaySwap reports whether an image's code has bytes that look like those of functions that swap pieces of their stack (see
// [Site.Swaps]). That takes a fraction of what it takes to find them.
func MaySwap(f *elfio.File) bool { return plain.MaySwap(f) }

// LoadsSwaps reports whether an image is one that loads images with such functions, whatever else is recorded of them: an
// interpreter of Python or what has one in it, as Python's coroutines of package greenlet share a stack.
func LoadsSwaps(f *elfio.File) bool {
	has, err := f.HasDynamicSymbol("Py_BytesMain", "Py_Main", "Py_Initialize", "Py_InitializeEx", "Py_InitializeFromConfig")
	return err == nil && has
}
