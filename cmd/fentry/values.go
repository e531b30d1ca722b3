package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// Calls by what they were made with: conditions on captured arguments choose some, report -g groups them.

// conditionFlag adds --if.
func conditionFlag(cmd *cobra.Command, conditions *[]string) {
	cmd.Flags().StringArrayVar(conditions, "if", nil, "show only calls whose recorded arguments fulfil `CONDITION`, such as "+
		"'arg1 > 100', 'path ~ /etc/*' or 'req->len > 100' (repeatable: all must)")
}

// parseConditions parses the values of --if.
func parseConditions(cmd *cobra.Command, texts []string) (conditions []arguments.Condition, err error) {
	for _, text := range texts {
		c, err := arguments.ParseCondition(text)
		if err != nil {
			return nil, usagef(cmd, "--if: %v", err)
		}
		conditions = append(conditions, c)
	}
	return conditions, nil
}

// when translates conditions to what says of a call's entry whether all hold; nil: there are none.
func when(cmd *cobra.Command, t *trace.Trace, texts []string) (func(*trace.Event) bool, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	conditions, err := parseConditions(cmd, texts)
	if err != nil {
		return nil, err
	}
	return func(ev *trace.Event) bool {
		c := t.Capture(ev)
		if c == nil || ev.Args == nil || ev.Args.Open {
			return false
		}
		m := ev.Args.Memory()
		for i := range conditions {
			if !conditions[i].Holds(c, ev.Args.Words, m) {
				return false
			}
		}
		return true
	}, nil
}

// groups prints report -g FUNC@NAME.
func (c *reportCmd) groups(a *app, cmd *cobra.Command, t *trace.Trace, sel *selection) (err error) {
	spec, err := arguments.ParseSpec(c.group)
	if err == nil && (len(spec.Items) != 1 || len(spec.Conditions) != 0) {
		err = fmt.Errorf("%q names no value, as in handle@arg1", c.group)
	}
	if err != nil {
		return usagef(cmd, "--group-by: %v", err)
	}
	if err := c.resolve(cmd, t, sel); err != nil {
		return err
	}
	match, named, err := matcher(cmd, t, []string{spec.Pattern}, nil)
	if err != nil {
		return err
	}
	holds, err := when(cmd, t, c.conditions)
	if err != nil {
		return err
	}
	walk := sel.walk
	walk.Calls = trace.Calls{}
	rows, err := t.ReportValues(trace.ValueOptions{Walk: walk, Match: match, Name: spec.Items[0].Name, When: holds})
	if err != nil {
		return pathError(err)
	}
	warnUnmatched(a, t, named)
	found := len(rows)
	if c.top > 0 {
		rows = rows[:min(c.top, len(rows))]
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	if err := c.writeGroups(out, t, rows); err != nil {
		return err
	}
	if found == 0 {
		a.notef("fentry: %s: no value %s was recorded of such calls: see fentry record -A", t.Dir, spec.Items[0].Name)
	}
	reportLost(a, t)
	return nil
}

// writeGroups writes a line for each value, or a JSON object.
func (c *reportCmd) writeGroups(out *output, t *trace.Trace, rows []trace.ValueStat) error {
	timed := untimed(t) == ""
	if c.json {
		for i := range rows {
			r := &rows[i]
			b := safetext.AppendJSON([]byte(`{"func":`), t.Label(r.Func))
			b = safetext.AppendJSON(append(b, `,"value":`...), r.Value)
			b = strconv.AppendUint(append(b, `,"calls":`...), r.Calls, 10)
			if timed {
				avg := r.Sum / int64(max(1, r.Calls))
				b = fmt.Appendf(b, `,"total":%d,"avg":%d,"min":%d,"max":%d`, r.Sum, avg, max(0, r.Min), r.Max)
			}
			if _, err := out.Write(append(b, "}\n"...)); err != nil {
				return err
			}
		}
		return nil
	}
	cells := [][]string{{"CALLS", "TOTAL", "AVG", "MIN", "MAX", "CALL"}}
	for i := range rows {
		r := &rows[i]
		cells = append(cells, []string{strconv.FormatUint(r.Calls, 10), durationCell(r.Sum),
			durationCell(r.Sum / int64(max(1, r.Calls))), durationCell(max(0, r.Min)), durationCell(r.Max),
			t.Label(r.Func) + ": " + r.Value})
	}
	columns := []int{0, 1, 2, 3, 4}
	if !timed {
		columns = columns[:1]
	}
	widths := make([]int, len(cells[0]))
	for _, k := range columns {
		for _, row := range cells {
			widths[k] = max(widths[k], len([]rune(row[k])))
		}
	}
	for _, row := range cells {
		line := ""
		for _, k := range columns {
			line += fmt.Sprintf("%*s  ", widths[k], row[k])
		}
		if _, err := fmt.Fprintln(out, line+row[len(row)-1]); err != nil {
			return err
		}
	}
	return nil
}

// checkGroups says what cannot be asked for together with --group-by.
func (c *reportCmd) checkGroups(cmd *cobra.Command) error {
	others := []string{"sort", "fields", "task", "process", "srcline", "never", "syscalls", "diff", "histogram", "graph",
		"graph-notrace", "threshold", "filter", "notrace"}
	i := slices.IndexFunc(others, func(name string) bool { return cmd.Flags().Changed(name) })
	switch {
	case c.group == "" && len(c.conditions) > 0:
		return usagef(cmd, "--if is for --group-by")
	case c.group != "" && i >= 0:
		return usagef(cmd, "--group-by and --%s are mutually exclusive", others[i])
	}
	return nil
}
