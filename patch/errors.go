package patch

import (
	"errors"

	"github.com/fentry-dev/fentry/record"
)

// ErrNoSites is returned by [New] if there is nothing to trace: callers may then run or copy the program unchanged.
var ErrNoSites = errors.New("no function to trace")

// ErrNotPatched is returned for an image that fentry has not patched.
var ErrNotPatched = errors.New("not patched by fentry")

// ErrOverlay is returned by New if data follow what the headers of the image describe; see [Options.Overlay].
var ErrOverlay = errors.New("data follow the ELF image, where the program may look for them from the end of its file")

// ErrTracer is returned by New for an image linked with a tracer of its own, which profiling calls that are kept
// would start, too; see [Options.Keep].
var ErrTracer = errors.New("linked with a tracer of its own, which kept calls would start, too")

// ErrFunctionOnly is returned by New if the functions to be traced sign their return addresses before their sites:
// only the tracer [Function] leaves those alone.
var ErrFunctionOnly = errors.New("requires the function tracer (" + string(record.ReasonSignedReturn) + ")")
