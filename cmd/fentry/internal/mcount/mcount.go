// Package mcount is what fentry mcount does, apart from the other commands: it can run before they are initialised
// (early.go), because builds start it once an object.
package mcount

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/fentry-dev/fentry/internal/buildstep"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/record/objects"
)

// Command is a command line without its files.
type Command struct {
	Options buildstep.Options
	Warn    bool // name the sections whose calls are not recorded
	Classic bool // report as recordmcount does
	Jobs    int  // files at once, 0: one a processor

	DepAuto            bool // write FILE.d
	DepFile, DepTarget string

	// ForLarge, when not nil, is what serves many or large files.
	ForLarge *ForLarge

	// Report, when not nil, is what looks at file i instead of changing it. What it prints can be long and is not kept,
	// so one file is looked at after another.
	Report func(i int) *Report
}

// ForLarge is what the packages that this one must not import (early.go) do for many or large files.
type ForLarge struct {
	// Collect makes the garbage collector wait longer: what there is of an object is needed until it is written, and
	// collecting every 4 MB finds little. It is called once.
	Collect func()
	// Map and Guard are those of buildstep.Options.
	Map   func(fd int, path string) (b []byte, unmap func() error, err error)
	Guard func(func() error) error
}

// Report is what one file has to say on standard output.
type Report struct {
	Inspect func(member string, ob *objects.Object, res objects.Result) error
	Out     io.Writer // set by Run
	Bad     bool      // a check has failed
}

// Where garbage is worth a thought. What is left by few files, none of them large, is less than the first collection
// waits for.
const (
	collectFiles = 64
	collectSize  = 1 << 20
)

// large reports whether files will leave more garbage than that.
func large(files []string) bool {
	if len(files) >= collectFiles {
		return true
	}
	for _, f := range files {
		if st, err := os.Stat(f); err == nil && st.Size() >= collectSize {
			return true
		}
	}
	return false
}

// Run works on the files and prints what there is to say, in their order. ok is false when a file has failed, which has
// been said then.
func (c *Command) Run(files []string, stdout, stderr io.Writer) (ok bool, err error) {
	if c.ForLarge != nil {
		c.Options.Map, c.Options.Guard = c.ForLarge.Map, c.ForLarge.Guard
		if large(files) && c.Report == nil { // what is printed is not kept
			c.ForLarge.Collect()
		}
	}
	jobs := c.Jobs
	var text *bufio.Writer
	if c.Report != nil {
		text, jobs = bufio.NewWriterSize(stdout, 1<<16), 1
	}
	work := make([]buildstep.Job, len(files))
	reports := make([]*Report, len(files))
	for i, f := range files {
		work[i] = buildstep.Job{Path: f, Options: c.Options}
		if c.Report != nil {
			reports[i] = c.Report(i)
			work[i].Options.Inspect = reports[i].Inspect
			reports[i].Out = text
		}
	}
	var rules []buildstep.Rule
	ok = true
	var writeErr error
	buildstep.Run(work, jobs, func(i int, out buildstep.Outcome, err error) {
		if r := reports[i]; r != nil {
			ok = ok && !r.Bad
			if writeErr = text.Flush(); writeErr != nil {
				return // who reads the output has gone
			}
		}
		c.say(files[i], out, err, stdout, stderr)
		if err != nil {
			ok = false
		} else if c.DepAuto || c.DepFile != "" {
			rules = append(rules, buildstep.Rule{Target: files[i], Prereqs: out.Prereqs})
		}
	})
	if writeErr != nil {
		return ok, writeErr
	}
	return ok, c.depfiles(rules)
}

// say prints what happened to a file.
func (c *Command) say(file string, out buildstep.Outcome, err error, stdout, stderr io.Writer) {
	if c.Warn {
		for _, s := range out.Unrecorded {
			if c.Classic {
				fmt.Fprintf(stdout, "Section %s has mcount callers being ignored\n", safetext.Line(s))
			} else {
				fmt.Fprintf(stdout, "%s: section %s has profiling calls that are not recorded\n", safetext.Line(file), safetext.Line(s))
			}
		}
	}
	switch {
	case err != nil && c.Classic:
		fmt.Fprintf(stderr, "%s\n%s: failed\n", safetext.Message(err.Error()), file)
	case err != nil:
		fmt.Fprintf(stderr, "fentry: %s\n", safetext.Message(err.Error()))
	case out.Note != "":
		fmt.Fprintf(stderr, "fentry: %s: %s; nothing changed\n", safetext.Message(file), out.Note)
	case c.Classic && out.Tabled:
		fmt.Fprintf(stderr, "warning: %s already exists: %s\n", objects.TableName, file)
	}
}

// depfiles writes what DepAuto and DepFile ask for.
func (c *Command) depfiles(rules []buildstep.Rule) error {
	if c.DepFile != "" {
		if c.DepTarget != "" {
			all := buildstep.Rule{Target: c.DepTarget}
			for _, r := range rules {
				all.Prereqs = append(append(all.Prereqs, r.Target), r.Prereqs...)
			}
			rules = []buildstep.Rule{all}
		}
		return buildstep.WriteDepfile(c.DepFile, rules)
	}
	for _, r := range rules {
		if err := buildstep.WriteDepfile(r.Target+".d", []buildstep.Rule{r}); err != nil {
			return err
		}
	}
	return nil
}
