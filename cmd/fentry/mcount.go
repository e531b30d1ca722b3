package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/buildstep"
	"github.com/fentry-dev/fentry/record/objects"
)

type mcountCmd struct {
	compat, allExec, keepCalls bool
	list, json, check, strip   bool
	nop, sort, warn            bool
	keepLinks, keepTime, sync  bool
	jobs                       int
	depAuto                    bool
	depFile, depTarget         string
	classic                    bool // called by the name recordmcount
}

func newMcountCmd(a *app) *cobra.Command {
	var c mcountCmd
	cmd := c.command()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.usage(); err != nil {
			return usagef(cmd, "%v", err)
		}
		return c.run(a, args)
	}
	return cmd
}

// command describes the command line.
func (c *mcountCmd) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mcount [options] FILE...",
		Short: "add tables of call sites to object files",
		Long: `mcount is a build step. It finds the calls of profiling functions (-pg, with or
without -mfentry) in object files and in the members of archives, and adds the
table __mcount_loc that lists them, in place. The linker makes one table of all.
Calls in sections that are not recorded become nops.

It says nothing when all went well, and a file that has its table stays as it
is. Called by the name recordmcount it takes that program's command line.`,
		Example: `  gcc -pg -mfentry -c foo.c && fentry mcount foo.o
  fentry mcount a.o b.o lib.a          many files, in parallel
  fentry mcount --list foo.o           what is, or would be, recorded
  fentry mcount --check foo.o          does the table fit the code?
  fentry mcount --strip foo.o          the object as it was
  fentry mcount --nop prog             a program's profiling calls become nops
  fentry mcount --sort prog            its table sorted, dead entries zeroed`,
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.BoolVar(&c.list, "list", false, "print the sites; writes nothing")
	f.BoolVar(&c.json, "json", false, "with --list: one JSON object a site and line")
	f.BoolVar(&c.check, "check", false, "compare tables with the code; writes nothing")
	f.BoolVar(&c.strip, "strip", false, "give back the objects as they were before")
	f.BoolVar(&c.nop, "nop", false, "turn all profiling calls of linked programs or objects into nops")
	f.BoolVar(&c.sort, "sort", false, "sort the tables of linked programs, zero entries outside functions")
	f.BoolVar(&c.compat, "compat", false, "one table an object, laid out as recordmcount does")
	f.BoolVar(&c.allExec, "all-exec", false, "record every executable section, not only .text and the like")
	f.BoolVar(&c.keepCalls, "keep-calls", false, "leave calls in sections that are not recorded")
	f.BoolVarP(&c.warn, "warn", "w", false, "name the sections whose calls are not recorded")
	f.IntVarP(&c.jobs, "jobs", "j", 0, "work on `N` files at once (default: one a processor)")
	f.BoolVar(&c.depAuto, "MD", false, "write the dependencies of FILE to FILE.d (also -MD)")
	f.StringVar(&c.depFile, "MF", "", "write them to `DEPFILE` (also -MF)")
	f.StringVar(&c.depTarget, "MT", "", "`TARGET` of the rule in it (also -MT)")
	f.BoolVar(&c.keepLinks, "keep-links", false, "write files with several hard links in place (not atomic)")
	f.BoolVar(&c.keepTime, "keep-time", false, "keep modification times")
	f.BoolVar(&c.sync, "sync", false, "flush to disk before a file is replaced")
	return cmd
}

// usage says what is wrong with the combination of options.
func (c *mcountCmd) usage() error {
	modes := 0
	for _, m := range []bool{c.list, c.check, c.strip, c.nop, c.sort} {
		if m {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("--list, --check, --strip, --nop and --sort exclude each other")
	case c.json && !c.list:
		return errors.New("--json goes with --list")
	case c.jobs < 0:
		return errors.New("--jobs: negative number")
	case c.depTarget != "" && c.depFile == "":
		return errors.New("-MT goes with -MF")
	}
	return nil
}

// mcountFast runs the command without building all others first, because a build starts it once a file. It declines
// anything out of the ordinary.
func mcountFast(a *app, argv0 string, args []string) (status int, ok bool) {
	if filepath.Base(argv0) == "recordmcount" {
		return recordmcount(a, args), true
	}
	if len(args) < 2 || args[0] != "mcount" || a.getenv("FENTRY_OPTS") != "" {
		return 0, false
	}
	var c mcountCmd
	f := c.command().Flags()
	if err := f.Parse(args[1:]); err != nil || f.NArg() == 0 || c.usage() != nil {
		return 0, false
	}
	return c.main(a, f.Args()), true
}

// mcountArgs spells the options of compilers that have two letters and one dash as the flag parser wants them.
func mcountArgs(args []string) []string {
	if len(args) == 0 || args[0] != "mcount" {
		return args
	}
	out := append([]string(nil), args...)
	for i, w := range out {
		switch {
		case w == "--":
			return out
		case w == "-MD" || w == "-MF" || w == "-MT":
			out[i] = "-" + w
		case strings.HasPrefix(w, "-MF") || strings.HasPrefix(w, "-MT"):
			out[i] = "-" + w[:3] + "=" + w[3:]
		}
	}
	return out
}

// recordmcount is the command line of the kernel's program of that name: [-w] file.o...
func recordmcount(a *app, args []string) int {
	c := mcountCmd{compat: true, classic: true, jobs: 1}
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
		c.warn = true
	}
	if len(args) == 0 {
		fmt.Fprintln(a.stderr, "usage: recordmcount [-w] file.o...")
		return exitUsage
	}
	files := args[:0:0]
	for _, f := range args {
		// The kernel's ftrace.o handles the address of the profiling function.
		if !strings.HasSuffix(f, "/ftrace.o") {
			files = append(files, f)
		}
	}
	return c.main(a, files)
}

// main runs the command as all the process does.
func (c *mcountCmd) main(a *app, files []string) int {
	// A small object leaves little garbage and there are many: collecting it every 4 MB costs more than the work.
	debug.SetGCPercent(400)
	if err := c.run(a, files); err != nil {
		return a.fail(nil, err)
	}
	return exitOK
}

// run works on the files and prints what there is to say, in their order.
func (c *mcountCmd) run(a *app, files []string) error {
	o := buildstep.Options{
		Objects: objects.Options{Compat: c.compat, AllExec: c.allExec, KeepCalls: c.keepCalls, Nop: c.nop},
		Strip:   c.strip, KeepLinks: c.keepLinks, KeepTime: c.keepTime, Sync: c.sync,
		ReadOnly: c.list || c.check, Nop: c.nop, Sort: c.sort,
	}
	texts := make([]text, len(files))
	rules := make([]buildstep.Rule, 0, len(files))
	failed := false
	var writeErr error
	work := make([]buildstep.Job, len(files))
	for i, f := range files {
		work[i] = buildstep.Job{Path: f, Options: o}
		switch {
		case c.list:
			work[i].Options.Inspect = texts[i].lister(files, i, c.json)
		case c.check:
			work[i].Options.Inspect = texts[i].checker(f)
		}
	}
	buildstep.Run(work, c.jobs, func(i int, out buildstep.Outcome, err error) {
		if t := &texts[i]; writeErr == nil && t.out.Len() > 0 {
			_, writeErr = t.out.WriteTo(a.stdout)
		}
		failed = failed || texts[i].bad
		if c.warn {
			for _, s := range out.Unrecorded {
				if c.classic {
					fmt.Fprintf(a.stdout, "Section %s has mcount callers being ignored\n", s)
				} else {
					fmt.Fprintf(a.stdout, "%s: section %s has profiling calls that are not recorded\n", files[i], s)
				}
			}
		}
		switch {
		case err != nil && c.classic:
			fmt.Fprintf(a.stderr, "%s\n%s: failed\n", oneLine(err.Error()), files[i])
			failed = true
		case err != nil:
			fmt.Fprintf(a.stderr, "fentry: %s\n", oneLine(err.Error()))
			failed = true
		case c.classic && out.Tabled:
			fmt.Fprintf(a.stderr, "warning: %s already exists: %s\n", objects.TableName, files[i])
		}
		if err == nil {
			rules = append(rules, buildstep.Rule{Target: files[i], Prereqs: out.Prereqs})
		}
	})
	if writeErr != nil {
		return writeErr
	}
	if err := c.depfiles(rules); err != nil {
		return err
	}
	if failed {
		return &exitError{Code: exitFailed}
	}
	return nil
}

// depfiles writes what -MD and -MF ask for.
func (c *mcountCmd) depfiles(rules []buildstep.Rule) error {
	if c.depFile != "" {
		if c.depTarget != "" {
			all := buildstep.Rule{Target: c.depTarget}
			for _, r := range rules {
				all.Prereqs = append(append(all.Prereqs, r.Target), r.Prereqs...)
			}
			rules = []buildstep.Rule{all}
		}
		return buildstep.WriteDepfile(c.depFile, rules)
	}
	if !c.depAuto {
		return nil
	}
	for _, r := range rules {
		if err := buildstep.WriteDepfile(r.Target+".d", []buildstep.Rule{r}); err != nil {
			return err
		}
	}
	return nil
}

// runMain runs one command line.
func runMain(a *app) int {
	args := mcountArgs(os.Args[1:])
	if status, ok := mcountFast(a, os.Args[0], args); ok {
		return status
	}
	return run(args, a)
}
