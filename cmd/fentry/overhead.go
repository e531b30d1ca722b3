package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// overheadFlag is the value of --overhead.
type overheadFlag struct {
	text    string
	percent float64 // less than 0: no bound
	file    string  // that lists what is left out instead
}

const noOverhead = "no"

func (o *overheadFlag) String() string { return o.text }
func (o *overheadFlag) Type() string   { return "PERCENT" }

func (o *overheadFlag) Set(s string) error {
	o.text, o.percent, o.file = s, -1, ""
	if s == noOverhead {
		return nil
	}
	if file, ok := strings.CutPrefix(s, "@"); ok && file != "" {
		o.file = file
		return nil
	}
	p, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(p > 0 && p <= 1e6) {
		return errors.New("not a percentage above 0, no, or @FILE")
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

// leftOut reads the file that lists what is left out; nil: none is given.
func (o *overheadFlag) leftOut() (*record.LeftOut, error) {
	if o.file == "" {
		return nil, nil
	}
	f, err := os.Open(o.file)
	if err != nil {
		return nil, pathError(err)
	}
	defer f.Close()
	l, err := record.ReadLeftOut(f)
	if err != nil {
		return nil, fmt.Errorf("--overhead: %s: %w", o.file, err)
	}
	return l, nil
}

// checkLeftOut warns of a list that has nothing to do with the program.
func checkLeftOut(a *app, p *patch.Plan, file string) {
	if l := p.Options.Without; l != nil && !l.Image(hex.EncodeToString(p.BuildID), p.Options.Path) {
		a.notef("fentry: warning: %s lists no functions of %s as it is now: nothing is left out", file, p.Options.Path)
	}
}

// writeSwitchedOff writes the functions that were switched off as --overhead @FILE reads them.
func writeSwitchedOff(w io.Writer, t *trace.Trace) error {
	if len(t.SwitchedOff) == 0 {
		return fmt.Errorf("%s: no function was switched off", t.Dir)
	}
	var l record.LeftOut
	for _, s := range t.SwitchedOff {
		im, fn := &t.Images[s.Func.Image], t.Func(s.Func)
		if fn.Addr == 0 {
			return fmt.Errorf("%s: image %s has no symbols: where its functions are is unknown", t.Dir, im.Path)
		}
		l.Add(im.BuildID, im.Path, fn.Addr, fn.Display())
	}
	_, err := l.WriteTo(w)
	return err
}

// reportSwitchedOff says, always, that functions were switched off, or left out for that: their numbers are too small, or missing.
func reportSwitchedOff(a *app, t *trace.Trace) {
	for _, list := range recordedWith(t, "--overhead=@") {
		a.sayf("fentry: %s: the functions that %s lists were left out (record --overhead @FILE): times of their callers include theirs",
			t.Dir, list)
	}
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
