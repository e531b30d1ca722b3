package main

import (
	"os"
	"path/filepath"

	"github.com/fentry-dev/fentry/export/formats"
)

// export prints how fast a trace is written in each format, and the memory that takes for a small and a large one: about
// 7 and 100 million events. Merged formats are compared with fentry graph, which makes the same tree. Files go to
// /dev/null, through standard output; directories have to be written.
func (b *bench) export() error {
	sizes := []string{"2", "29"}
	if b.quick {
		sizes = []string{"1", "2"}
	}
	return b.readers("Exporting traces of Lua; wanted: merged formats as fast as graph, chrome, perfetto, trace.dat and uftrace "+
		">= 5 million events a CPU second, in memory that does not grow", sizes, func(data, _ string) ([]*variant, error) {
		out := filepath.Join(b.dir, "export.out")
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
		return vs, nil
	})
}
