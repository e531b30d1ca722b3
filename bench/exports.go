package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/fentry-dev/fentry/export/formats"
)

// export prints how fast a trace is written in each format, and the memory that takes for a small and a large one: about
// 7 and 100 million events. Merged formats are compared with fentry graph, which makes the same tree. Files go to
// /dev/null, through standard output; directories have to be written.
func (b *bench) export() error {
	program, lua, err := b.preparedLua()
	if err != nil {
		return err
	}
	small, large := "2", "29"
	if b.quick {
		small, large = "1", "2"
	}
	fmt.Println("Exporting traces of Lua; wanted: merged formats as fast as graph, chrome, perfetto, trace.dat and uftrace " +
		">= 5 million events a second, in memory that does not grow")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "M events\tM events/s\t(best)\tCPU s\twall s\tRSS MB\t\t")
	for _, size := range []string{small, large} {
		data, out := filepath.Join(b.dir, "export.data"), filepath.Join(b.dir, "export.out")
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		if _, err := b.run(job{argv: []string{b.fentry, "record", "-q", "-o", data, program, lua, size}}); err != nil {
			return err
		}
		_, events, err := b.traceSize(data)
		if err != nil {
			return err
		}
		vs := []*variant{{name: "fentry graph", job: job{argv: []string{b.fentry, "graph", "-i", data}}}}
		for i := range formats.All {
			f := &formats.All[i]
			v := &variant{name: f.Name, clean: func() error { return os.RemoveAll(out) }}
			to := "-"
			if f.WriteDir != nil {
				to = out
			}
			v.job.argv = []string{b.fentry, "export", "-q", "-i", data, "-o", to, "--format", f.Name}
			vs = append(vs, v)
		}
		if err := b.inTurn(vs, 0); err != nil {
			return err
		}
		printReading(w, vs, events)
	}
	return errors.Join(w.Flush(), os.RemoveAll(filepath.Join(b.dir, "export.data")))
}
