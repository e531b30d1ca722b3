package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

// overheadFlag is the value of --overhead.
type overheadFlag struct {
	text    string
	percent float64 // less than 0: no bound
}

const noOverhead = "no"

func (o *overheadFlag) String() string { return o.text }
func (o *overheadFlag) Type() string   { return "PERCENT" }

func (o *overheadFlag) Set(s string) error {
	o.text, o.percent = s, -1
	if s == noOverhead {
		return nil
	}
	p, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(p > 0 && p <= 1e6) {
		return errors.New("not a percentage above 0, or no")
	}
	o.percent = p
	return nil
}

// limit is the bound as a part of the time without tracing, as [fentry.Options] has it.
func (o *overheadFlag) limit(cmd *cobra.Command, t *traceFlags) (float64, error) {
	switch {
	case o.text == "":
		return 0, nil
	case o.percent < 0:
		return -1, nil
	case t.tracer == patch.Profile.String() || t.tracer == patch.Count.String():
		return 0, usagef(cmd, "--overhead requires a tracer that records events, not %s", t.tracer)
	case t.clock == trace.ClockNone:
		return 0, usagef(cmd, "--overhead requires a clock")
	}
	return o.percent / 100, nil
}

// reportSwitchedOff says, always, that functions were switched off: their numbers are too small.
func reportSwitchedOff(a *app, t *trace.Trace) {
	n := len(t.SwitchedOff)
	if n == 0 {
		return
	}
	since := ""
	if !t.Clockless() {
		since = fmt.Sprintf(" from %s on", duration(uint64(max(t.SwitchedOff[0].From, 0))))
	}
	a.sayf("fentry: %s: %s switched off%s to bound what tracing costs: their calls and times are at least what is shown, "+
		"and times of their callers include theirs (all of them: record --overhead no)",
		t.Dir, plural(uint64(n), "function was", "functions were"), since)
}
