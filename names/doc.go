// Package names says what the ids in a trace mean: (image, id) to function, file and line.
//
// Ids come from three places, and a [Table] serves them all alike:
//
//   - the .sym file that a recorder leaves in the trace directory ([Read], [Write]);
//   - a program that fentry has patched, which carries the table of its sites with it;
//   - a program that was linked with the tracer, in which an id is the place of a call.
//
// Package trace asks here by itself, so most users see functions' names as
// [github.com/fentry-dev/fentry/trace.Trace.Name] only. To find them for an image alone:
//
//	im := names.Image{ID: id, BuildID: buildID, Paths: []string{"/usr/bin/prog"}}
//	tab, err := names.Find(im)
//	fn, ok := tab.Func(17)
//	lines, err := names.FindLines(im)
//	line, ok, err := lines.At(fn.Addr)
//	frames, err := lines.Frames(addr) // with what was inlined there
//
// # Security
//
// Everything an [Image] says can come from a trace that anybody may have written. Of its paths only regular files are
// opened, whatever a path leads to, and a file is used only if it is the image: by image id, or by build-id. Malformed
// programs and .sym files give errors, in time and memory linear in their size.
package names
