package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// Limits of what completion looks at: it must answer while somebody waits.
const (
	completeFiles = 16
	completeBytes = 64 << 20
	completeNames = 5000
)

// registerPatternCompletion completes function names behind the options that
// take patterns, in all commands.
func (a *app) registerPatternCompletion(cmd *cobra.Command) {
	for _, name := range []string{"filter", "notrace", "available", "graph", "graph-notrace", "focus", "trigger", "stack"} {
		if cmd.Flags().Lookup(name) != nil {
			cmd.RegisterFlagCompletionFunc(name, a.completeFunctions)
		}
	}
	for _, c := range cmd.Commands() {
		a.registerPatternCompletion(c)
	}
}

// completeFunctions offers the functions of the program or trace the command
// line names so far; without one, those of the programs in the working directory
// and of the trace there.
func (a *app) completeFunctions(
	cmd *cobra.Command, args []string, toComplete string,
) ([]string, cobra.ShellCompDirective) {
	prefix := ""
	if rest, ok := strings.CutPrefix(toComplete, "!"); ok {
		prefix, toComplete = "!", rest
	}
	c := nameCollector{begin: toComplete, seen: map[string]bool{}}
	switch {
	case len(args) > 0:
		c.add(args[0])
	default:
		dir := a.dataDir()
		if f := cmd.Flags().Lookup("input"); f != nil && f.Changed {
			dir = f.Value.String()
		}
		c.add(dir)
		if cmd.Flags().Lookup("input") == nil {
			c.addPrograms(".")
		}
	}
	slices.Sort(c.names)
	out := make([]string, len(c.names))
	for i, n := range c.names {
		out[i] = prefix + n
		if d := symbol.Demangle(n, symbol.Simple); d != n {
			out[i] = cobra.CompletionWithDesc(out[i], d)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// nameCollector gathers function names that begin in a certain way.
type nameCollector struct {
	begin string
	names []string
	seen  map[string]bool
	bytes int64
}

func (c *nameCollector) name(n string) {
	if n != "" && strings.HasPrefix(n, c.begin) && !c.seen[n] && len(c.names) < completeNames {
		c.seen[n] = true
		c.names = append(c.names, n)
	}
}

// add takes the functions of a program or a trace directory. What cannot be read
// has none.
func (c *nameCollector) add(path string) {
	fi, err := os.Stat(path)
	if err != nil {
		return
	}
	if fi.IsDir() {
		files, _ := filepath.Glob(filepath.Join(path, "*"+trace.SymExt))
		for _, name := range files {
			c.addSymbols(name)
		}
		return
	}
	if c.bytes += fi.Size(); c.bytes > completeBytes {
		return
	}
	im, err := openImage(path)
	if err != nil {
		return
	}
	defer im.close()
	sites, err := im.sites(symbol.Options{}, record.Options{})
	if err != nil {
		return
	}
	for i := range sites {
		if sites[i].Traceable() {
			c.name(strings.Clone(sites[i].Display()))
		}
	}
}

func (c *nameCollector) addSymbols(path string) {
	f, err := safefile.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	tab, err := names.Load(f, names.MaxSymFile)
	if err != nil {
		return
	}
	for fn := range tab.Traced() {
		c.name(strings.Clone(fn.Display()))
	}
}

// addPrograms takes the functions of the executable files in a directory.
func (c *nameCollector) addPrograms(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	n := 0
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || !fi.Mode().IsRegular() || fi.Mode()&fs.ModePerm&0o111 == 0 {
			continue
		}
		if n++; n > completeFiles {
			return
		}
		c.add(filepath.Join(dir, e.Name()))
	}
}
