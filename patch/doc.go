// Package patch plans what has to change in an ELF image so that it traces
// itself, and applies, verifies and undoes that plan.
//
//	f, err := elfio.Parse(image)
//	sites, err := record.Find(f, record.Options{})
//	plan, err := patch.New(f, sites, patch.Options{Tracer: patch.FunctionGraph})
//	out, err := plan.Image()       // a new ELF file ...
//	mem, err := plan.Memory()      // ... or, with Target Process, what to write into a process at its exec stop
//	orig, err := patch.Undo(out)   // byte for byte the file the plan was made for
//
// Planning never writes and applying never decides. A [Plan] is plain data: what it does with each function can be
// changed until it is applied:
//
//	for i := range plan.Functions {
//		if fn := &plan.Functions[i]; fn.Action == patch.Trace && fn.Size < 16 {
//			fn.Action = patch.Leave
//		}
//	}
//
// Every edit has an address, the bytes expected there, the bytes to write, and the function it belongs to. All old
// bytes are compared before the first byte is written; if any differ, the error is an *[arch.Bug], with actual and
// expected bytes as in ftrace's bug report, and nothing is changed.
//
// A plan is deterministic: the same image and options give the same bytes.
//
// # Security
//
// The image is untrusted input: it is never executed, sizes are checked before anything is allocated for them, and an
// image that cannot be patched gives an error. Apart from tracing, a patched program does what the original does;
// patching does not make an untrusted program safe to run.
package patch
