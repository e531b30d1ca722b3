package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/trace"
)

// demoProgram is a static program of musl, built by demo/build.sh from
// demo/demo.c and checked in, so that the demo needs no compiler.
//
//go:embed demo/demo.elf
var demoProgram []byte

// demoLines is how much of the function graph the demo shows.
const demoLines = 44

func newDemoCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [DIR]",
		Short: "trace an embedded program and show the result",
		Long: `demo shows fentry at work on a program of its own: it parses, sorts, leaves
nested calls by longjmp and works in threads. The commands are printed as you
would type them. With DIR, the program and its trace are kept there for you to
try more; otherwise they are removed.`,
		Example: `  fentry demo
  fentry demo try && cd try && fentry replay`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := ""
			if len(args) > 0 {
				dir = args[0]
			}
			return runDemo(a, dir)
		},
	}
}

func runDemo(a *app, dir string) error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("the demo's program runs on Linux on x86-64; this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	keep := dir != ""
	if keep {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return pathError(err)
		}
	} else {
		tmp, err := os.MkdirTemp("", "fentry-demo-")
		if err != nil {
			return pathError(err)
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	back, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return pathError(err)
	}
	defer os.Chdir(back)
	if err := writeDemo(); err != nil {
		return pathError(err)
	}
	d := demo{app: a, paint: paint(a.colors(a.stdout))}
	d.say("A small program, compiled with -pg -mfentry: it calculates, sorts, fails and\n" +
		"works in threads. First run it, traced:")
	d.run("record", "./demo")
	d.say("What it did, call by call:")
	d.head(demoLines, "replay", "--no-pager")
	d.say("Where the time went, by function:")
	d.run("report", "--no-pager")
	if d.err != nil {
		return d.err
	}
	next := `Now with a program of yours:

    gcc -O2 -pg -mfentry -c prog.c && gcc -o prog prog.o
    fentry record ./prog
    fentry replay
    fentry graph`
	if keep {
		next = "The program and its trace are in " + dir + ".\n" + next
	}
	d.say(next)
	return nil
}

// demo runs fentry's own commands in this process, printing each as it would be
// typed. After a failure it does nothing more.
type demo struct {
	*app
	paint paint
	err   error
}

func (d *demo) say(text string) {
	if d.err == nil {
		fmt.Fprintf(d.stdout, "\n%s\n\n", text)
	}
}

// typed is the command line as a user would write it.
func (d *demo) typed(args []string) {
	fmt.Fprintf(d.stdout, "%s\n", d.paint.with(sgrBold, "$ fentry "+trace.QuoteArgs(args)))
}

func (d *demo) run(args ...string) {
	if d.err != nil {
		return
	}
	d.typed(args)
	d.execute(d.app, args)
}

// head runs a command and prints the first lines of its output.
func (d *demo) head(lines int, args ...string) {
	if d.err != nil {
		return
	}
	d.typed(args)
	var buf bytes.Buffer
	sub := *d.app
	sub.stdout = &buf
	d.execute(&sub, args)
	text := buf.Bytes()
	for ; lines > 0 && len(text) > 0; lines-- {
		n := bytes.IndexByte(text, '\n') + 1
		if n == 0 {
			n = len(text)
		}
		d.stdout.Write(text[:n])
		text = text[n:]
	}
	if rest := bytes.Count(text, []byte{'\n'}); rest > 0 {
		fmt.Fprintln(d.stdout, d.paint.with(sgrDim, "... "+plural(uint64(rest), "more line", "more lines")))
	}
}

// execute runs a command with the global options of the demo.
func (d *demo) execute(a *app, args []string) {
	if d.err != nil {
		return
	}
	color := "never"
	if d.paint {
		color = "always"
	}
	sub := *a
	sub.lookupEnv = func(name string) (string, bool) {
		switch name {
		case "FENTRY_OPTS", "FENTRY_DATA":
			return "", false // the demo's commands mean what they say
		}
		return a.lookupEnv(name)
	}
	root := newRootCmd(&sub, args[0])
	root.SetArgs(append([]string{"--color=" + color}, args...))
	if cmd, err := root.ExecuteC(); err != nil {
		if exit := (*exitError)(nil); errors.As(err, &exit) && exit.Err == nil {
			err = fmt.Errorf("the program ended with status %d", exit.Code)
		}
		if abs, aerr := filepath.Abs("."); aerr == nil {
			err = fmt.Errorf("%s in %s: %w", cmd.Name(), abs, err)
		}
		d.err = err
	}
}

// writeDemo puts the program into the working directory, whatever somebody else has put there under its name.
func writeDemo() error {
	return atomicfile.Write("demo", atomicfile.Options{Own: true, NoSync: true}, func(w *os.File) error {
		if _, err := w.Write(demoProgram); err != nil {
			return err
		}
		return w.Chmod(0o755)
	})
}
