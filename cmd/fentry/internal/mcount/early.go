package mcount

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Builds start fentry mcount once an object, and what the packages of the other commands do when a program starts would
// take longer than adding the table. Go initialises packages one by one, each time the first by import path of those
// whose imports are initialised (language specification, "Program initialization"). So the usual command lines run to
// their end in the initialisation of this package. In front of it come
//
//   - what it imports: package record, for one, which brings regular expressions, demangling and debug information, is
//     kept out by objects.NopImage's parameter; and nothing that stands late in the order may be imported, because all
//     that stands before it and is ready goes first: runtime/debug alone would bring record, patch and session;
//   - what stands before it by its path and is ready: some packages of the standard library that do next to nothing.
//
// TestStart names both, so that an import anywhere in the program that adds to them is seen. Tried before: a program of
// its own, which is a second file to install and to keep of the same version.

func init() {
	if status, ok := Main(os.Args, os.LookupEnv, os.Stdout, os.Stderr, nil); ok {
		os.Exit(status)
	}
}

// Main runs the whole command line if it is a usual one of fentry mcount, or recordmcount's. Everything else is left to
// the command's own parser: help, mistakes, reports, defaults from the environment. Many or large files are left to a
// later call too, which has what only later packages can do for them.
func Main(
	args []string, env func(string) (string, bool), stdout, stderr io.Writer, large *ForLarge,
) (status int, ok bool) {
	c := Command{ForLarge: large}
	if len(args) > 0 && filepath.Base(args[0]) == "recordmcount" {
		return c.recordmcount(args[1:], stdout, stderr)
	}
	if len(args) < 3 || args[1] != "mcount" {
		return 0, false
	}
	if v, _ := env("FENTRY_OPTS"); v != "" {
		return 0, false
	}
	files, ok := c.Parse(args[2:])
	if !ok || len(files) == 0 {
		return 0, false
	}
	return c.main(files, stdout, stderr)
}

// Parse takes the options that change files and say nothing; ok is false when there are others. They mean what they
// mean in newMcountCmd.
func (c *Command) Parse(args []string) (files []string, ok bool) {
	o := &c.Options
	flags := map[string]*bool{
		"--compat": &o.Objects.Compat, "--all-exec": &o.Objects.AllExec, "--keep-calls": &o.Objects.KeepCalls,
		"--strip": &o.Strip, "--keep-links": &o.KeepLinks, "--keep-time": &o.KeepTime, "--sync": &o.Sync,
		"--warn": &c.Warn, "-w": &c.Warn,
	}
	for i, w := range args {
		switch {
		case w == "--":
			return append(files, args[i+1:]...), true
		case flags[w] != nil:
			*flags[w] = true
		case strings.HasPrefix(w, "-j") && len(w) > len("-j"):
			n, err := strconv.ParseUint(w[len("-j"):], 0, 16)
			if err != nil {
				return nil, false
			}
			c.Jobs = int(n)
		case strings.HasPrefix(w, "-"):
			return nil, false
		default:
			files = append(files, w)
		}
	}
	return files, true
}

// recordmcount is the command line of the kernel's program of that name: [-w] file.o...
func (c *Command) recordmcount(args []string, stdout, stderr io.Writer) (status int, ok bool) {
	c.Classic, c.Jobs, c.Options.Objects.Compat = true, 1, true
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "-" {
		w := args[0]
		args = args[1:]
		if w == "--" {
			break
		}
		if strings.Trim(w[1:], "w") != "" {
			args = nil
			break
		}
		c.Warn = true
	}
	if len(args) == 0 {
		fmt.Fprintln(stderr, "usage: recordmcount [-w] file.o...")
		return 2, true
	}
	files := args[:0:0]
	for _, f := range args {
		// The kernel's ftrace.o handles the address of the profiling function.
		if !strings.HasSuffix(f, "/ftrace.o") {
			files = append(files, f)
		}
	}
	return c.main(files, stdout, stderr)
}

// main runs the command as all the process does.
func (c *Command) main(files []string, stdout, stderr io.Writer) (status int, ok bool) {
	if c.ForLarge == nil && large(files) {
		return 0, false
	}
	if ok, err := c.Run(files, stdout, stderr); !ok || err != nil {
		if err != nil {
			fmt.Fprintf(stderr, "fentry: %s\n", err)
		}
		return 1, true
	}
	return 0, true
}
