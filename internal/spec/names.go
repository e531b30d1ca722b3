package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// What files and tracers are called. Programs that write their traces alone, recorders, patchers and readers all say
// these words, and a program that puts an older trace aside removes nothing that they do not name.

// DefaultDir is the trace directory when none is named.
const DefaultDir = "fentry.data"

// A TraceFile is a file of a trace directory.
type TraceFile struct {
	Name string // of the constant
	File string // its name; of the symbols' files the part behind the image id
	Doc  string
}

// TraceFiles are the files of a trace directory with a name of their own.
var TraceFiles = []TraceFile{
	{"EVENTS", "events", "what the tasks did; binary"},
	{"CHUNKS", "chunks", "a copy of the headers of all chunks in `events`, which makes opening faster; binary"},
	{"INDEX", "index", "where to begin reading `events` for a question, which makes answers faster; binary"},
	{"NEW_INDEX", "index.new", "the file `index` while it is made"},
	{"INFO", "info.json", "what the recorder knows: command, exit status, clock, images"},
	{"SOCKET", "socket", "where programs ask their recorder for its memory that cannot see it in /proc, while it records; " +
		"a socket"},
}

// SymFile is the kind of file of which there is one for each image.
var SymFile = TraceFile{"SYM", ".sym",
	"the functions of a program image, by id; the name is the image id as 16 lower-case hex digits"}

// Tracers are the names of tracers, by their values in Modes.
var Tracers = []string{"function_graph", "function", "profile", "count"}

// list is texts with a NUL behind each, as both languages write it. (Octal: in C, \x goes on for as long as there are
// hex digits.)
func list(texts []string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, t := range texts {
		q := strconv.Quote(t)
		b.WriteString(q[1:len(q)-1] + `\000`)
	}
	b.WriteByte('"')
	return b.String()
}

// TraceTexts are the texts of the trace format. They are texts in C, too.
func TraceTexts() []Group {
	g := Group{Doc: "names in the file system", Consts: []Const{
		{"DIR_DEFAULT", strconv.Quote(DefaultDir), "trace directory if none is named"},
	}}
	var files []string
	for _, f := range TraceFiles {
		g.Consts = append(g.Consts, Const{"FILE_" + f.Name, strconv.Quote(f.File), ""})
		files = append(files, f.File)
	}
	g.Consts = append(g.Consts,
		Const{"FILE_" + SymFile.Name, strconv.Quote(SymFile.File), "behind 16 hex digits"},
		Const{"FILES", list(files), "all of them but those, NUL behind each"})
	return []Group{g}
}

// ConfigTexts are the texts of the configuration.
func ConfigTexts() []Group {
	return []Group{{"tracers", []Const{{"MODE_NAMES", list(Tracers), "by the value of CONFIG_O_MODE, NUL behind each"}}}}
}

// files is the table of the files of a trace.
func files() string {
	var b strings.Builder
	b.WriteString("| file | contents |\n| --- | --- |\n")
	for _, f := range TraceFiles {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.File, cell(f.Doc))
	}
	fmt.Fprintf(&b, "| `<image id>%s` | %s |", SymFile.File, cell(SymFile.Doc))
	return b.String()
}

// or is a list for people: a, b or c.
func or(words []string) string {
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " or " + words[n]
}
