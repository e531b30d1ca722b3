package patch

import (
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
)

// ErrSanitizer is returned by New for an image compiled with a sanitizer whose tables lie where the tracer keeps
// return addresses. The tracer [Function] keeps none.
var ErrSanitizer = errors.New("its memory is where the tracer keeps return addresses")

// sanitizers are those that divide the address space up to the stacks among
// themselves, by the function that programs compiled for them begin with.
// (AddressSanitizer leaves room there.)
var sanitizers = map[string]string{
	"__tsan_init": "ThreadSanitizer",
	"__msan_init": "MemorySanitizer",
}

// checkSanitizer returns an error that wraps [ErrSanitizer] for images that only
// [Function] can trace. The function is always a dynamic symbol: imported, or
// exported by the sanitizer's runtime in the program.
func checkSanitizer(f *elfio.File) error {
	syms, err := f.DynamicSymbols()
	if err != nil {
		return err
	}
	for i := range syms {
		if name, ok := sanitizers[syms[i].Name]; ok {
			return fmt.Errorf("compiled with %s: %w", name, ErrSanitizer)
		}
	}
	return nil
}
