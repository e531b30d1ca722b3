package mcount

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// What the other commands' packages do when a program starts takes longer than adding the table to an object. Go
// initialises packages in the order of their import paths as soon as what they import is initialised (language
// specification, "Program initialization"), so this comes before most of it.
func init() {
	if status, ok := early(os.Args, os.LookupEnv, os.Stdout, os.Stderr); ok {
		os.Exit(status)
	}
}

// early runs the whole command line if it is a usual one of fentry mcount, or recordmcount's. Everything else is left to
// the command's own parser: help, mistakes, reports, defaults from the environment.
func early(args []string, env func(string) (string, bool), stdout, stderr io.Writer) (status int, ok bool) {
	if len(args) > 0 && filepath.Base(args[0]) == "recordmcount" {
		return recordmcount(args[1:], stdout, stderr), true
	}
	if len(args) < 3 || args[1] != "mcount" {
		return 0, false
	}
	if v, _ := env("FENTRY_OPTS"); v != "" {
		return 0, false
	}
	var c Command
	files, ok := c.Parse(args[2:])
	if !ok || len(files) == 0 {
		return 0, false
	}
	return c.main(files, stdout, stderr), true
}

// Parse takes the options that change files and say nothing; ok is false when there are others. They mean what they mean
// in newMcountCmd.
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
func recordmcount(args []string, stdout, stderr io.Writer) (status int) {
	c := Command{Classic: true, Jobs: 1}
	c.Options.Objects.Compat = true
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
		return 2
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
func (c *Command) main(files []string, stdout, stderr io.Writer) (status int) {
	if ok, err := c.Run(files, stdout, stderr); !ok || err != nil {
		if err != nil {
			fmt.Fprintf(stderr, "fentry: %s\n", err)
		}
		return 1
	}
	return 0
}
