package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/trace"
)

// A reportField is a column of the report.
type reportField struct {
	name  string
	value func(*trace.FuncStat) int64 // for sorting; -1 when not known
	count bool                        // a number, not a time
	least bool                        // it only grows with more calls
	part  bool                        // a part of total, which can be known in part
}

var reportFields = []reportField{
	{name: "calls", count: true, least: true, value: func(s *trace.FuncStat) int64 { return int64(s.Calls) }},
	{name: "total", least: true, value: func(s *trace.FuncStat) int64 { return s.Total }},
	{name: "self", least: true, value: func(s *trace.FuncStat) int64 { return s.Self }},
	{name: "cpu", part: true, least: true, value: func(s *trace.FuncStat) int64 { return s.CPU }},
	{name: "wait", part: true, least: true, value: func(s *trace.FuncStat) int64 { return s.Wait }},
	{name: "running", least: true, value: func(s *trace.FuncStat) int64 { return s.Running }},
	{name: "waiting", least: true, value: func(s *trace.FuncStat) int64 { return s.Waiting }},
	{name: "avg", value: func(s *trace.FuncStat) int64 { return s.Avg }},
	{name: "min", value: func(s *trace.FuncStat) int64 { return s.Min }},
	{name: "max", value: func(s *trace.FuncStat) int64 { return s.Max }},
	{name: "p99", value: func(s *trace.FuncStat) int64 { return s.P99 }},
	{name: "stddev", value: func(s *trace.FuncStat) int64 { return int64(s.StdDev) }},
	{name: "unwound", count: true, least: true, value: func(s *trace.FuncStat) int64 { return int64(s.Unwound) }},
	{name: "unfinished", count: true, least: true, value: func(s *trace.FuncStat) int64 { return int64(s.Unfinished) }},
}

func reportNames() []string {
	var names []string
	for i := range reportFields {
		names = append(names, reportFields[i].name)
	}
	return names
}

func findReportField(name string) *reportField {
	for i := range reportFields {
		if reportFields[i].name == name {
			return &reportFields[i]
		}
	}
	return nil
}

// A reportView is what a report shows of each function, and in which order.
type reportView struct {
	fields []*reportField
	keys   []*reportField // nil: the name
	less   func(a, b trace.FuncStat) int
}

// shown looks up what the flags ask for.
func (c *reportCmd) shown(cmd *cobra.Command) (v reportView, err error) {
	for _, name := range c.sort {
		f := findReportField(name)
		if f == nil && name != "name" {
			return v, usagef(cmd, "--sort: no key %q; there are %s, name", name, strings.Join(reportNames(), ", "))
		}
		v.keys = append(v.keys, f)
	}
	v.less = byKeys(v.keys)
	if c.diff != "" && !cmd.Flags().Changed("fields") {
		c.fields = []string{"total", "calls"} // three columns of numbers each
	}
	for _, name := range c.fields {
		f := findReportField(name)
		if f == nil {
			return v, usagef(cmd, "--fields: no field %q; there are %s", name, strings.Join(reportNames(), ", "))
		}
		v.fields = append(v.fields, f)
	}
	return v, nil
}

// untimed leaves what a trace without times has, unless the flags name it.
func (v *reportView) untimed(cmd *cobra.Command) {
	if !cmd.Flags().Changed("fields") {
		v.fields = []*reportField{findReportField("calls")}
	}
	if !cmd.Flags().Changed("sort") {
		v.keys = []*reportField{findReportField("calls")}
		v.less = byKeys(v.keys)
	}
}

// byKeys compares by the values of keys, largest first. Ties are left in the order they have, by total time.
func byKeys(keys []*reportField) func(a, b trace.FuncStat) int {
	return func(a, b trace.FuncStat) int {
		for _, k := range keys {
			d := 0
			if k == nil {
				d = strings.Compare(a.Name, b.Name)
			} else {
				d = cmp.Compare(k.value(&b), k.value(&a))
			}
			if d != 0 {
				return d
			}
		}
		return 0
	}
}

// registerFieldCompletion completes comma-separated lists of names.
func registerFieldCompletion(cmd *cobra.Command, flag string, names []string) {
	cmd.RegisterFlagCompletionFunc(flag, func(
		_ *cobra.Command, _ []string, toComplete string,
	) ([]string, cobra.ShellCompDirective) {
		done := ""
		if i := strings.LastIndexByte(toComplete, ','); i >= 0 {
			done = toComplete[:i+1]
		}
		var out []string
		for _, n := range names {
			out = append(out, done+n)
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}
