package patch

import (
	"errors"

	"github.com/fentry-dev/fentry/record"
)

// ErrNoSites is returned by [New] when there is nothing to trace: callers may
// then run or copy the program unchanged.
var ErrNoSites = errors.New("no function to trace")

// ErrNotPatched says that an image carries nothing of fentry's.
var ErrNotPatched = errors.New("not patched by fentry")

// ErrOverlay says that data follow what the headers of an image describe; see
// [Options.Overlay].
var ErrOverlay = errors.New("data follow the ELF image, where the program may look for them from the end of its file")

// ErrTracer says that an image is linked with a tracer of its own, which calls that
// are kept would start besides the one that is put in; see [Options.Keep].
var ErrTracer = errors.New("linked with a tracer of its own, which kept calls would start, too")

// ErrFunctionOnly says that the functions that were to be traced sign their return
// addresses before their sites: only the tracer [Function] leaves those alone.
var ErrFunctionOnly = errors.New("requires the function tracer (" + string(record.ReasonSignedReturn) + ")")
