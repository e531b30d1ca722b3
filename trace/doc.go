// Package trace reads traces: the directory that fentry record or a patched
// program writes.
//
//	t, err := trace.Open("fentry.data")
//	if err != nil {
//		return err
//	}
//	defer t.Close()
//	rows, err := t.Report(trace.ReportOptions{})      // a row a function: calls and times
//	root, err := t.Graph(trace.GraphOptions{})        // the merged call tree
//	err = t.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
//		if ev.Kind == trace.Exit {
//			fmt.Println(ev.Time, ev.Task, t.Name(ev.Func), ev.Dur)
//		}
//		return nil
//	})
//
// docs/format.md describes the files. Names come from the .sym files in the
// directory, else, as with a trace that a patched program wrote alone, from the
// program's own file, which package names finds and reads, or from
// Options.Resolve. [Trace.Source] gives places in the source.
//
// # Layers
//
// A decoder turns the words of one task's chunks into entries, exits and what
// else the format has; a follower keeps them as calls on stacks, which gives
// durations and repairs what longjmp, exceptions, coroutines, forks and lost
// events leave open; a sink counts (Report), builds a tree (Graph) or makes
// Events, which Walk merges by time. Writer is the inverse of the decoder.
//
// # Security
//
// Every file of a trace may be truncated or damaged, by accident or on purpose.
// What can be read is read, the rest is in Trace.Problems; nothing panics, and
// memory stays in proportion to the number of chunks, tasks and functions, not
// to what the files claim. Files that change while they are read give wrong
// events, no crash: none is memory-mapped. The programs that a trace names are, for
// as long as their symbols or lines are read; of these only regular files are
// opened, and only what is the image that was traced is used. Options.Resolve can
// keep a reader from opening any.
package trace
