package main

import (
	"errors"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/mcount"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/record/objects"
)

type mcountCmd struct {
	mcount.Command
	list, json, check bool
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
without -mfentry) in object files and in the members of archives, and adds a
table of them, __mcount_loc, in place. The linker joins the tables into one.
Calls in sections that are not recorded become nops.

It prints nothing on success, and leaves a file alone that already has its table.
Invoked as recordmcount, it takes that program's command line.

--compat lays tables out as recordmcount does: read-only, one per object. Then
position-independent programs and libraries need the linker's -z notext;
--gc-sections keeps every function in the table, or drops the table (lld, without
-z nostart-stop-gc); and GNU ld refuses libraries with direct calls that became
nops, because their symbol is kept, as recordmcount keeps it. With mold, all
objects of a program need tables of the same layout; those that compilers make
(-mrecord-mcount) count as --compat.

--sort takes functions from the symbol table, so it has to run before strip -x,
and not on what ld -x has linked: there, static functions have no symbols, and
their entries are zeroed. Without any symbols, nothing is zeroed.

A file is replaced in one step. A run that is killed between the two system
calls of that step leaves a file .fentry-*, which the next run on the same file
removes.`,
		Example: `  gcc -pg -mfentry -c foo.c && fentry mcount foo.o
  fentry mcount a.o b.o lib.a          many files, in parallel
  fentry mcount --list foo.o           what is, or would be, recorded
  fentry mcount --check foo.o          does the table match the code?
  fentry mcount --strip foo.o          restore the object
  fentry mcount --nop prog             a program's profiling calls become nops
  fentry mcount --sort prog            its table sorted, dead entries zeroed`,
		Args: cobra.MinimumNArgs(1),
	}
	f, o := cmd.Flags(), &c.Options
	f.BoolVar(&c.list, "list", false, "print the sites; write nothing")
	f.BoolVar(&c.json, "json", false, "with --list: one JSON object per line, one per site")
	f.BoolVar(&c.check, "check", false, "compare tables with the code; write nothing")
	f.BoolVar(&o.Strip, "strip", false, "restore the objects as they were before")
	f.BoolVar(&o.Nop, "nop", false, "turn all profiling calls of linked programs or objects into nops")
	f.BoolVar(&o.Sort, "sort", false, "sort the tables of linked programs, and zero entries outside functions")
	f.BoolVar(&o.Objects.Compat, "compat", false, "write one table per object, laid out as recordmcount does")
	f.BoolVar(&o.Objects.AllExec, "all-exec", false, "record every executable section, not only .text and the like")
	f.BoolVar(&o.Objects.KeepCalls, "keep-calls", false, "leave calls in sections that are not recorded")
	f.BoolVarP(&c.Warn, "warn", "w", false, "name the sections whose calls are not recorded")
	f.IntVarP(&c.Jobs, "jobs", "j", 0, "work on `N` files at once (default: one per processor)")
	f.BoolVar(&c.DepAuto, "MD", false, "write the dependencies of FILE to FILE.d (also -MD)")
	f.StringVar(&c.DepFile, "MF", "", "write them to `DEPFILE` (also -MF)")
	f.StringVar(&c.DepTarget, "MT", "", "`TARGET` of the rule in it (also -MT)")
	f.BoolVar(&o.KeepLinks, "keep-links", false, "write files with several hard links in place (not atomic)")
	f.BoolVar(&o.KeepTime, "keep-time", false, "keep modification times")
	f.BoolVar(&o.Sync, "sync", false,
		"flush to disk before a file is replaced, so that a power failure cannot leave it empty")
	return cmd
}

// usage says what is wrong with the combination of options.
func (c *mcountCmd) usage() error {
	modes := 0
	for _, m := range []bool{c.list, c.check, c.Options.Strip, c.Options.Nop, c.Options.Sort} {
		if m {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("--list, --check, --strip, --nop and --sort are mutually exclusive")
	case c.json && !c.list:
		return errors.New("--json requires --list")
	case c.Jobs < 0:
		return errors.New("--jobs: negative number")
	case c.DepTarget != "" && c.DepFile == "":
		return errors.New("-MT requires -MF")
	}
	return nil
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

// run works on the files and prints what there is to say, in their order.
func (c *mcountCmd) run(a *app, files []string) error {
	c.Options.Objects.Nop = c.Options.Nop
	c.Options.Calls, c.ForLarge = profilingCalls, largeObjects()
	c.Options.ReadOnly = c.list || c.check
	switch {
	case c.list:
		c.Report = func(i int) *mcount.Report { return lister(files, i, c.json) }
	case c.check:
		c.Report = func(i int) *mcount.Report { return checker(files[i]) }
	}
	ok, err := c.Run(files, a.stdout, a.stderr)
	if err == nil && !ok {
		err = &exitError{Code: exitFailed}
	}
	return err
}

// largeObjects is what serves many or large files.
func largeObjects() *mcount.ForLarge {
	return &mcount.ForLarge{
		Collect: func() { debug.SetGCPercent(400) },
		Map:     mapObject,
		Guard:   mapped.Guard,
	}
}

// mapObject maps an open file.
func mapObject(fd int, path string) (b []byte, unmap func() error, err error) {
	m, err := mapped.MapFD(fd, path)
	if err != nil {
		return nil, nil, err
	}
	return m.Data, m.Close, nil
}

// profilingCalls finds the calls that --nop turns into nops.
func profilingCalls(f *elfio.File) ([]objects.Call, error) {
	sites, err := record.Find(f, record.Options{Plain: record.PlainNone})
	if err != nil {
		return nil, err
	}
	var calls []objects.Call
	for i := range sites {
		if s := &sites[i]; s.Len > 0 && (s.Kind == record.KindFentryCall || s.Kind == record.KindMcountCall) {
			calls = append(calls, objects.Call{Addr: s.Addr, Bytes: s.Bytes})
		}
	}
	return calls, nil
}
