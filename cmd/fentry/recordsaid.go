package main

import (
	"fmt"
	"os"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
)

// libraries says what became of the libraries that were to be traced.
func (c *recordCmd) libraries(a *app, res *fentry.Result, o patch.Options) {
	if len(c.library) == 0 {
		return
	}
	for _, l := range res.Libraries {
		if l.Untraced == "" && a.verbose > 0 {
			a.notef("fentry: %s: %s traced", l.Path, plural(uint64(l.Traced), "function", "functions"))
		}
	}
	for _, p := range res.UnmatchedLibraries {
		a.notef("fentry: warning: -L %s: no such library was loaded", p)
	}
	c.unmatched(a, &o)
}

// executed says what became of the programs that traced ones have executed.
func (c *recordCmd) executed(a *app, res *fentry.Result, o patch.Options) {
	if len(c.library) == 0 && !c.told {
		c.unmatched(a, &o)
	}
	if a.verbose > 0 {
		c.executedOf(a, res)
	}
}

// executedOf says which programs were executed, and what became of them.
func (c *recordCmd) executedOf(a *app, res *fentry.Result) {
	if res.NotFollowed != "" {
		a.notef("fentry: programs that it executes are not traced: %s", res.NotFollowed)
	}
	for _, x := range res.Executed {
		times := ""
		if x.Times > 1 {
			times = fmt.Sprintf(", executed %d times", x.Times)
		}
		switch {
		case x.Untraced != "" && x.Untraced == res.Untraced: // it has been told
		case x.Untraced != "":
			a.notef("fentry: %s: not traced%s: %s", x.Path, times, x.Untraced)
		case x.Traced > 0:
			a.notef("fentry: %s: %s traced%s", x.Path, plural(uint64(x.Traced), "function", "functions"), times)
		}
	}
}

// stays says in which processes the tracer stays: always, as they are not what they were.
func (a *app) stays(r *session.Result) {
	if a.quiet { // else it has been told
		for _, s := range r.Stays {
			a.sayf("fentry: %s", s)
		}
	}
}

// summary is one line in the manner of perf; lost events are always told.
func (c *recordCmd) summary(a *app, r *session.Result) {
	if a.quiet && r.WriteError != nil { // else it has been told
		a.sayf("fentry: %v", r.WriteError)
	}
	if r.BadChunks > 0 {
		a.sayf("fentry: %s left out", plural(r.BadChunks, "invalid chunk", "invalid chunks"))
	}
	if n := r.Unfollowed; n > 0 {
		a.sayf("fentry: not traced: what was executed at %s that this recorder did not answer in time, or that the program could not make",
			plural(uint64(n), "request", "requests"))
	}
	if n := r.Unloaded; n > 0 {
		a.sayf("fentry: not traced: libraries among %s that were loaded while the program could not ask this recorder",
			plural(uint64(n), "file", "files"))
	}
	if a.quiet && r.Lost == 0 && !r.Uncounted {
		return
	}
	what, threads := plural(r.Events, "event", "events"), ""
	switch c.tracer {
	case patch.Profile.String():
		what = "profile"
	case patch.Count.String():
		what = "counts"
	}
	if r.Samples > 0 {
		what += ", " + plural(r.Samples, "stack", "stacks")
	}
	if r.Tasks > 0 || r.Samples == 0 { // of threads whose stacks alone are taken nobody counts how many there are
		threads = ", " + plural(uint64(r.Tasks), "thread", "threads")
	}
	if r.Processes > 1 {
		what += ", " + plural(uint64(r.Processes), "process", "processes")
	}
	over := ""
	if r.Uncounted {
		over = " and more that nobody counted (fentry info)"
	}
	if r.Overwrote > 0 {
		over += ", " + grouped(r.Overwrote) + " overwritten"
	}
	if r.SwitchedOff > 0 {
		over += ", " + plural(uint64(r.SwitchedOff), "function", "functions") + " switched off (fentry report says which)"
	}
	if r.Overhead >= time.Millisecond {
		over += fmt.Sprintf(", about %v of tracing", r.Overhead.Round(time.Millisecond))
	}
	where := size(uint64(r.Bytes)) + " -> " + r.Dir
	if r.Dir == "" {
		where = "the trace is gone"
	}
	a.sayf("[ fentry: %s%s, %s lost%s, %s ]", what, threads, grouped(r.Lost), over, where)
}

// reportNothing says, always, that there is no new trace: the next command would
// show an older one.
func reportNothing(a *app, dir string) {
	what := "nothing was traced; no trace was made"
	if _, err := os.Stat(dir); err == nil {
		what = fmt.Sprintf("nothing was traced; %s is still the trace of an earlier run", dir)
	}
	a.sayf("fentry: %s", what)
}
