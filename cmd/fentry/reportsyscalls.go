package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/trace"
)

// report --syscalls is strace -c's table, with the 99th percentile besides. Times are from a call's beginning to its end
// by the clock, as with strace -c -w.

// onlySyscalls leaves the rows of system calls, by time.
func onlySyscalls(rows []trace.FuncStat) []trace.FuncStat {
	rows = slices.DeleteFunc(rows, func(s trace.FuncStat) bool {
		_, known := s.Func.Syscall()
		return !known || s.Calls == 0
	})
	slices.SortStableFunc(rows, func(a, b trace.FuncStat) int {
		return cmp.Or(cmp.Compare(b.Sum, a.Sum), cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	return rows
}

const (
	syscallsHead = "% time     seconds  usecs/call         p99     calls    errors syscall\n"
	syscallsRule = "------ ----------- ----------- ----------- --------- --------- ----------------\n"
)

// writeSyscalls writes the table of the first top rows, 0: all; the last line is of all of them.
func writeSyscalls(out *output, t *trace.Trace, rows []trace.FuncStat, top int) error {
	var sum int64
	var calls, errs uint64
	for i := range rows {
		sum += max(0, rows[i].Sum)
		calls += rows[i].Calls
		errs += rows[i].Errors
	}
	line := func(time, calls, errs uint64, p99 int64, name string) string {
		percent := 0.0
		if sum > 0 {
			percent = float64(time) / float64(sum) * 100
		}
		failed, last := "", ""
		if errs > 0 {
			failed = fmt.Sprint(errs)
		}
		if p99 >= 0 {
			last = fmt.Sprint(p99 / 1000)
		}
		return fmt.Sprintf("%6.2f %11.6f %11d %11s %9d %9s %s\n", percent, float64(time)/1e9, time/1000/max(1, calls),
			last, calls, failed, name)
	}
	var b strings.Builder
	b.WriteString(syscallsHead + syscallsRule)
	for i := range rows {
		if top > 0 && i == top {
			break
		}
		r := &rows[i]
		number, _ := r.Func.Syscall()
		b.WriteString(line(uint64(max(0, r.Sum)), r.Calls, r.Errors, r.P99, t.Machine().Name(number)))
	}
	b.WriteString(syscallsRule)
	b.WriteString(line(uint64(sum), calls, errs, -1, "total"))
	_, err := out.Write([]byte(b.String()))
	return err
}
