// Package formats lists the formats that traces are exported to.
package formats

import (
	"io"
	"os"
	"strings"

	"github.com/fentry-dev/fentry/export"
	"github.com/fentry-dev/fentry/export/callgrind"
	"github.com/fentry-dev/fentry/export/chrome"
	"github.com/fentry-dev/fentry/export/csv"
	"github.com/fentry-dev/fentry/export/ctf"
	"github.com/fentry-dev/fentry/export/folded"
	"github.com/fentry-dev/fentry/export/parquet"
	"github.com/fentry-dev/fentry/export/perfetto"
	"github.com/fentry-dev/fentry/export/pprof"
	"github.com/fentry-dev/fentry/export/speedscope"
	"github.com/fentry-dev/fentry/export/tracedat"
	"github.com/fentry-dev/fentry/export/uftrace"
)

// A Format is one that traces are exported to.
type Format struct {
	Name string
	// Suffixes are the ends of names of files in the format, with their dots; the first is the usual one.
	Suffixes []string
	Readers  string // what opens it
	Binary   bool   // it is not for a terminal
	// Merged says that the format has sums of calls by paths, no single calls.
	Merged bool
	// Large is the size in bytes from which on readers are known to fail; 0: none is known.
	Large int64
	// PerEvent is about how many bytes the format takes for an entry or an exit; 0 if it is merged.
	PerEvent int64
	// Write writes a file, WriteDir the files of a directory that is empty. A format has one of them.
	Write    func(io.Writer, *export.Source) (export.Summary, error)
	WriteDir func(*os.Root, *export.Source) (export.Summary, error)
	// Adds says that WriteDir adds its files to those of a directory, whoever has written them, and replaces older ones of
	// the same trace.
	Adds bool
}

// All are the formats, in the order in which they are listed.
var All = []Format{
	{
		Name: "trace.dat", Suffixes: []string{".dat"}, Readers: "trace-cmd report, KernelShark",
		Binary: true, PerEvent: 34, Write: writeTraceDat,
	},
	{
		Name: "uftrace", Suffixes: []string{".uftrace"}, Readers: "uftrace (a directory)",
		Binary: true, PerEvent: 16, WriteDir: uftrace.Write,
	},
	{
		Name: "chrome", Suffixes: []string{".json"}, Readers: "chrome://tracing, ui.perfetto.dev, speedscope",
		Large: chrome.Large, PerEvent: 50, Write: chrome.Write,
	},
	{
		Name: "perfetto", Suffixes: []string{".pftrace", ".perfetto-trace"}, Readers: "ui.perfetto.dev, trace_processor",
		Binary: true, PerEvent: 26, Write: perfetto.Write,
	},
	{
		Name: "speedscope", Suffixes: []string{".speedscope.json", ".speedscope"}, Readers: "www.speedscope.app",
		PerEvent: 40, Write: speedscope.Write,
	},
	{
		Name: "pprof", Suffixes: []string{".pb.gz", ".pprof"}, Readers: "go tool pprof, pprof, speedscope",
		Binary: true, Merged: true, Write: pprof.Write,
	},
	{
		Name: "folded", Suffixes: []string{".folded"}, Readers: "flamegraph.pl, inferno, speedscope",
		Merged: true, Write: folded.Write,
	},
	{
		Name: "callgrind", Suffixes: []string{".callgrind"}, Readers: "callgrind_annotate, KCachegrind",
		Merged: true, Write: callgrind.Write,
	},
	{
		Name: "ctf", Suffixes: []string{".ctf"}, Readers: "babeltrace2, Trace Compass (a directory)",
		Binary: true, PerEvent: 13, WriteDir: ctf.Write,
	},
	{
		Name: "csv", Suffixes: []string{".csv"}, Readers: "spreadsheets, DuckDB, SQLite",
		PerEvent: 50, Write: csv.Write,
	},
	{
		Name: "parquet", Suffixes: []string{".parquet"}, Readers: "DuckDB, ClickHouse, Spark (a directory, of many traces)",
		Binary: true, PerEvent: 2, WriteDir: parquet.Write, Adds: true,
	},
	{
		Name: "csv-tables", Suffixes: []string{".tables"}, Readers: "the same tables for ClickHouse before 19, SQLite",
		PerEvent: 60, WriteDir: parquet.WriteCSV, Adds: true,
	},
}

// Named returns the format of a name, nil if there is none.
func Named(name string) *Format {
	for i := range All {
		if All[i].Name == name {
			return &All[i]
		}
	}
	return nil
}

// Of returns the format that a file's name says by its suffix, nil if it says none. "callgrind.out.123" is what
// callgrind calls its own files.
func Of(file string) *Format {
	base := file[strings.LastIndexByte(file, '/')+1:]
	if strings.HasPrefix(base, "callgrind.out") {
		return Named("callgrind")
	}
	var best *Format
	longest := 0
	for i := range All {
		for _, suffix := range All[i].Suffixes {
			if len(suffix) > longest && len(base) > len(suffix) && strings.HasSuffix(base, suffix) {
				best, longest = &All[i], len(suffix)
			}
		}
	}
	return best
}

// Names are the names of all formats.
func Names() []string {
	var names []string
	for _, f := range All {
		names = append(names, f.Name)
	}
	return names
}

// writeTraceDat gives tracedat a file that nobody else can open, in the directory for temporary files.
func writeTraceDat(w io.Writer, s *export.Source) (export.Summary, error) {
	spool, err := os.CreateTemp("", "fentry-export-")
	if err != nil {
		return export.Summary{}, err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return export.Summary{}, err
	}
	return tracedat.Write(w, s, spool)
}
