package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/triggers"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/stub"
	"github.com/fentry-dev/fentry/trace"
)

// flightFlags make record a flight recorder.
type flightFlags struct {
	size string
	on   []string
}

// longCalls is how --dump-on says that a call of a function is to have taken long.
const longCalls = "FUNC>TIME[:COUNT]"

type ending struct {
	name  string
	means func(syscall.WaitStatus) bool
}

// endings are the values of --dump-on, and which ends of a program they mean.
var endings = []ending{
	{"exit", func(syscall.WaitStatus) bool { return true }},
	{"exit!=0", func(s syscall.WaitStatus) bool { return s.Exited() && s.ExitStatus() != 0 }},
	{"signal", syscall.WaitStatus.Signaled},
}

func endingNames() []string {
	var names []string
	for _, e := range endings {
		names = append(names, e.name)
	}
	return names
}

func (c *flightFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.size, "flight", "", "keep the newest `SIZE` of events in memory and write them when the program has "+
		"ended, or, while it runs, to DIR.1, DIR.2 ... for fentry dump and SIGUSR2")
	f.StringArrayVar(&c.on, "dump-on", nil, "with --flight: write what there is at the end only for a `CAUSE`: "+
		strings.Join(endingNames(), ", ")+"; and, while the program runs, when a call has taken long: "+longCalls+" (repeatable)")
	cmd.RegisterFlagCompletionFunc("dump-on", cobra.FixedCompletions(endingNames(), cobra.ShellCompDirectiveNoFileComp))
}

// longCall is the trigger that a value of --dump-on stands for; "" for the name of an ending. Names of functions can have
// a > of their own.
func longCall(cause string) string {
	i := strings.LastIndexByte(cause, '>')
	if i < 0 {
		return ""
	}
	limit, count, counted := strings.Cut(cause[i+1:], ":")
	if counted {
		count = ":" + count
	}
	return cause[:i] + "@time>" + limit + ",snapshot" + count
}

// triggers are what calls are to ask for.
func (c *flightFlags) triggers(cmd *cobra.Command) (specs []string, err error) {
	for _, cause := range c.on {
		s := longCall(cause)
		if s == "" {
			continue
		}
		if _, err := triggers.Parse(s); err != nil {
			return nil, usagef(cmd, "--dump-on: %q is not %s", cause, longCalls)
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// apply sets what the flags say.
func (c *flightFlags) apply(cmd *cobra.Command, o *fentry.Options) (err error) {
	if c.size == "" {
		switch {
		case len(c.on) > 0:
			return usagef(cmd, "--dump-on is for --flight SIZE")
		case o.Plan.Actions.Has(func(a patch.Act) bool { return a.Kind == stub.ActSnapshot }):
			return usagef(cmd, "--trigger: snapshot is for --flight SIZE")
		}
		return nil
	}
	for _, name := range []string{"policy", "buffer"} {
		if cmd.Flags().Changed(name) {
			return usagef(cmd, "--flight and --%s are mutually exclusive", name)
		}
	}
	if o.Plan.Tracer.ChunkSize() != 0 {
		return usagef(cmd, "--flight: the %v tracer records no events", o.Plan.Tracer)
	}
	if o.Buffer, err = parseSize(c.size); err != nil {
		return usagef(cmd, "--flight: %v", err)
	}
	o.Policy, o.Flight = trace.PolicyOverwrite, &session.Flight{}
	if len(c.on) == 0 {
		return nil
	}
	var causes []func(syscall.WaitStatus) bool
	for _, name := range c.on {
		if longCall(name) != "" {
			continue
		}
		i := slices.IndexFunc(endings, func(e ending) bool { return e.name == name })
		if i < 0 {
			return usagef(cmd, "--dump-on: no cause %q; there are %s, %s", name, strings.Join(endingNames(), ", "), longCalls)
		}
		causes = append(causes, endings[i].means)
	}
	o.Flight.Keep = func(s syscall.WaitStatus) bool {
		return slices.ContainsFunc(causes, func(means func(syscall.WaitStatus) bool) bool { return means(s) })
	}
	return nil
}

// reportUnwanted says why a flight recorder wrote no trace at the end.
func reportUnwanted(a *app, r *session.Result, on []string) {
	end := fmt.Sprintf("ended with status %d", r.Status.ExitStatus())
	if r.Status.Signaled() {
		end = fmt.Sprintf("was ended by signal %d", int(r.Status.Signal()))
	}
	a.sayf("[ fentry: %s, not written: the program %s (--dump-on %s) ]", plural(r.Events, "event", "events"), end, strings.Join(on, ", "))
}

// dumpText is what info says of a dump.
func dumpText(d *trace.InfoDump) string {
	s := "while the program ran, for " + d.Cause
	if d.Asked > 0 {
		s += fmt.Sprintf(", the last %v", d.Asked)
	}
	if d.Whole > 0 {
		s += fmt.Sprintf("; whole for the last %v", d.Whole)
	}
	return s
}
