// Package trace reads traces: directories written by fentry record or by patched programs.
//
//	t, err := trace.Open("fentry.data")
//	if err != nil {
//		return err
//	}
//	defer t.Close()
//	rows, err := t.Report(trace.ReportOptions{})      // a row per function: calls and times
//	root, err := t.Graph(trace.GraphOptions{})        // the merged call tree
//	err = t.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
//		if ev.Kind == trace.Exit {
//			fmt.Println(ev.Time, ev.Task, t.Name(ev.Func), ev.Dur)
//		}
//		return nil
//	})
//
// docs/format.md describes the files. Names come from the .sym files in the directory or, if there are none, as in a
// trace that a patched program wrote alone, from the program's file, which package names finds and reads, or from
// Options.Resolve. [Trace.Source] returns places in the source. [Trace.Losses] says what is missing.
//
// # Layers
//
// A decoder turns the words of one task's chunks into entries, exits and other events; a follower tracks them as
// calls on stacks, which gives durations and repairs what longjmp, exceptions, coroutines, forks and lost events
// leave open; a sink counts (Report), builds a tree (Graph) or makes Events, which Walk merges by time. Writer is the
// inverse of the decoder.
//
// # Security
//
// Every file of a trace may be truncated or damaged, by accident or on purpose. Whatever can be read is read, the
// rest is reported in Trace.Problems; nothing panics, and memory is proportional to the number of chunks and tasks
// and to the text of .sym files (of which 1 GiB is kept), not to what the files claim: holes in them cost nothing. Files that change while they are read give wrong events, but no crash: they
// are not memory-mapped. Programs that a trace names are, while their symbols or lines are read; only regular files
// are opened, and one is used only if it is the image that was traced. Options.Resolve can keep a reader from opening
// any.
package trace
