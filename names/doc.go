// Package names resolves the ids in a trace: (image, id) to function, file and line.
//
// The functions of ids come from one of three places, and a [Table] holds them all alike:
//
//   - the .sym file that a recorder writes to the trace directory ([Read], [Write]);
//   - a program that fentry has patched, which contains the table of its sites;
//   - a program linked with the tracer, in which an id is the place of a call.
//
// Package trace uses this package, so most users need only github.com/fentry-dev/fentry/trace.Trace.Name. To resolve
// the ids of one image:
//
//	im := names.Image{ID: id, BuildID: buildID, Paths: []string{"/usr/bin/prog"}}
//	tab, err := names.Find(im)
//	fn, ok := tab.Func(17)
//	lines, err := names.FindLines(im)
//	line, ok, err := lines.At(fn.Addr)
//	frames, err := lines.Frames(addr) // including functions inlined there
//
// # Security
//
// An [Image] can come from a trace that anyone may have written. Of its paths only regular files are opened, and a
// file is used only if its image id or build-id shows that it is the image. Malformed programs and .sym files give
// errors, in time and memory linear in their size.
package names
