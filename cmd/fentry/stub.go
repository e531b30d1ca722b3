package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/machine"
	"github.com/fentry-dev/fentry/stub"
)

type stubCmd struct {
	out, arch string
	header    bool
}

// wanted is the machine that --arch names, or the one fentry runs on, or if there is no library for that the most
// common one.
func (c *stubCmd) wanted() (m machine.Machine, ok bool) {
	if c.arch != "" {
		return machine.Named(c.arch)
	}
	if m, ok := machine.Host(); ok {
		return m, true
	}
	return machine.All[0], true
}

func newStubCmd(a *app) *cobra.Command {
	var c stubCmd
	cmd := &cobra.Command{
		Use:   "stub [options]",
		Short: "write the tracer as a library for programs to link with",
		Long: `stub writes the tracer as a static library. A program that is compiled with -pg
(on x86-64 with or without -mfentry) and linked with it traces itself whenever it
runs, like one made by "fentry patch". Two lines of a Makefile:

  libfentry.a:                ; fentry stub -o $@
  prog: prog.o libfentry.a    ; $(CC) -o $@ $^

The trace goes to $FENTRY_DATA or fentry.data, or to the fentry record that the
program runs under; with FENTRY_OFF=1 nothing is traced. Instead, a program can
have functions of its own called at entry and exit: see fentry.h, which --header
prints.`,
		Example: `  fentry stub -o libfentry.a           the library
  gcc -O2 -pg -mfentry -c prog.c && gcc -o prog prog.o libfentry.a
  ./prog && fentry report              it traces itself
  fentry stub -o fentry.o              one relocatable object instead
  fentry stub --header > fentry.h      for fentry_mark() and callbacks of your own
  fentry stub --arch arm64 -o libfentry.a   for programs of another machine`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(a, cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.out, "output", "o", "",
		"write `FILE`: a library if its name ends in .a, an object file if it ends in .o")
	f.BoolVar(&c.header, "header", false, "print fentry.h")
	f.StringVar(&c.arch, "arch", "", "machine `ARCH` of the program: amd64 or arm64 (default: this machine)")
	return cmd
}

func (c *stubCmd) run(a *app, cmd *cobra.Command) error {
	m, ok := c.wanted()
	switch {
	case !ok:
		return usagef(cmd, "--arch: there is no library for %q, only for amd64 and arm64", c.arch)
	case c.header && c.out != "":
		return usagef(cmd, "--header prints to standard output; it cannot be used with -o")
	case c.header:
		_, err := a.stdout.Write(stub.Header())
		return err
	case c.out == "":
		return usagef(cmd, "give -o FILE or --header")
	}
	var b []byte
	var err error
	switch filepath.Ext(strings.TrimSuffix(c.out, string(filepath.Separator))) {
	case ".a":
		b, err = stub.Library(m.ELF)
	case ".o":
		b, err = stub.LibraryObject(m.ELF)
	default:
		return usagef(cmd, "-o %s: the name must end in .a (library) or .o (object)", c.out)
	}
	if err != nil {
		return err
	}
	return pathError(atomicfile.Write(c.out, atomicfile.Options{Own: true}, func(w *os.File) error {
		_, err := w.Write(b)
		return err
	}))
}
