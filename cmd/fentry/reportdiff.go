package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/trace"
)

// report --diff compares the table with that of an older trace. What was asked of one is asked of both. A change is
// known if both numbers are: a number that is a lower bound, because the recorder switched the function off, has none.

// diffFlag adds --diff, which report and graph have in common.
func diffFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "diff", "", "compare with the older trace in `DIR`: what takes more time, less, is new, is gone")
	cmd.RegisterFlagCompletionFunc("diff", func(
		*cobra.Command, []string, string,
	) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
}

// openOld opens the trace that another one is compared with, of which the same is asked.
func (c *filterFlags) openOld(a *app, cmd *cobra.Command, dir string) (t *trace.Trace, sel selection, err error) {
	if sel, err = c.parse(cmd); err != nil {
		return nil, sel, err
	}
	old := c.inputFlags
	old.dir = dir
	t, err = old.open(a, cmd, nil)
	return t, sel, err
}

// A side is a row of one of two traces.
type side struct {
	t   *trace.Trace
	row *trace.FuncStat
}

// called tells whether the trace has anything of the function.
func (s side) called() bool { return s.row.Name != "" }

// value returns a number, and whether it is known. What is only counted or summed is 0 where nothing was called.
func (s side) value(f *reportField) (v int64, known bool) {
	if !s.called() {
		return 0, f.least
	}
	if _, least := s.t.OffFrom(s.row.Func); least && f.least {
		return f.value(s.row), false
	}
	v = f.value(s.row)
	return v, v >= 0 && (!f.part || s.row.Unknown == 0)
}

// cell prints a number.
func (s side) cell(f *reportField) string {
	if !s.called() {
		return ""
	}
	_, least := s.t.OffFrom(s.row.Func)
	return f.cell(s.row, least)
}

// change returns by how much a number changed, and whether that is known.
func change(f *reportField, before, after side) (int64, bool) {
	a, known := before.value(f)
	b, both := after.value(f)
	return b - a, known && both
}

// writeDiff prints how the rows differ from those of the trace that --diff names.
func (c *reportCmd) writeDiff(
	a *app, cmd *cobra.Command, t *trace.Trace, rows []trace.FuncStat, shown *reportView,
) (err error) {
	old, sel, err := c.openOld(a, cmd, c.diff)
	if err != nil {
		return err
	}
	defer old.Close()
	before, err := c.count(a, cmd, old, &sel, shown)
	if err != nil {
		return err
	}
	sel.warn(a, old)
	changes := trace.CompareReports(before, rows)
	sides := func(x *trace.FuncChange) (side, side) { return side{old, &x.Old}, side{t, &x.New} }
	slices.SortStableFunc(changes, func(x, y trace.FuncChange) int {
		for _, f := range shown.keys {
			if f == nil {
				return 0 // they are sorted by name
			}
			size := func(x *trace.FuncChange) uint64 {
				before, after := sides(x)
				d, known := change(f, before, after)
				if !known {
					return 0
				}
				return uint64(max(d, -d))
			}
			if d := cmp.Compare(size(&y), size(&x)); d != 0 {
				return d
			}
		}
		return 0
	})
	if c.top > 0 && len(changes) > c.top {
		changes = changes[:c.top]
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	if c.json {
		err = c.writeDiffJSON(out, changes, sides)
	} else {
		err = writeDiffTable(out, changes, shown.fields, sides)
	}
	if err == nil {
		c.explain(a, old, before)
		c.explain(a, t, rows)
		compareSelf(a, before, rows)
	}
	return err
}

func writeDiffTable(
	out *output, changes []trace.FuncChange, fields []*reportField, sides func(*trace.FuncChange) (side, side),
) error {
	var tab table
	for _, f := range fields {
		name := strings.ToUpper(f.name)
		tab.column("OLD "+name, true)
		tab.column("NEW "+name, true)
		tab.column("CHANGE", true)
		tab.column("%", true)
	}
	tab.column("FUNCTION", false)
	for i := range changes {
		before, after := sides(&changes[i])
		var cells []string
		for _, f := range fields {
			cells = append(cells, before.cell(f), after.cell(f))
			cells = append(cells, changeCells(f, before, after)...)
		}
		tab.row(append(cells, changes[i].Name)...)
	}
	return tab.write(out, out.paint)
}

// changeCells prints a change, and what part of the old number it is.
func changeCells(f *reportField, before, after side) []string {
	d, known := change(f, before, after)
	part := "-"
	switch {
	case !before.called():
		part = "new"
	case !after.called():
		part = "gone"
	case known:
		v, _ := before.value(f)
		part = changePercent(v, d)
	}
	if !known {
		return []string{"-", part}
	}
	if f.count {
		return []string{signed(d, func(d int64) string { return grouped(uint64(d)) }), part}
	}
	return []string{signed(d, durationCell), part}
}

// signed prints a change with its sign; 0 has none.
func signed(d int64, text func(int64) string) string {
	switch {
	case d > 0:
		return "+" + text(d)
	case d < 0:
		return "-" + text(-d)
	}
	return text(0)
}

// changePercent prints what part of the old number a change is.
func changePercent(old, d int64) string {
	switch {
	case d == 0:
		return "0.0"
	case old <= 0:
		return "-"
	}
	return fmt.Sprintf("%+.1f", 100*float64(d)/float64(old))
}

// compareSelf says how the time in all functions changed. The times in functions themselves add up, totals do not.
func compareSelf(a *app, before, after []trace.FuncStat) {
	var old, now int64
	for i := range before {
		old += max(0, before[i].Self)
	}
	for i := range after {
		now += max(0, after[i].Self)
	}
	if old > 0 && now > 0 {
		a.notef("fentry: time in these functions: %s, was %s (%s %%)",
			duration(uint64(now)), duration(uint64(old)), changePercent(old, now-old))
	}
}

// diffLine is a line of report --diff --json. Old or New is null if the function was not called in that trace.
type diffLine struct {
	Name string      `json:"name"`
	Old  *reportLine `json:"old"`
	New  *reportLine `json:"new"`
}

func (c *reportCmd) writeDiffJSON(
	out *output, changes []trace.FuncChange, sides func(*trace.FuncChange) (side, side),
) error {
	enc := jsonLines(out)
	line := func(s side) *reportLine {
		if !s.called() {
			return nil
		}
		l := c.line(one(s.t), s.row, nil)
		return &l
	}
	for i := range changes {
		before, after := sides(&changes[i])
		if err := enc.Encode(diffLine{Name: changes[i].Name, Old: line(before), New: line(after)}); err != nil {
			return err
		}
	}
	return nil
}
