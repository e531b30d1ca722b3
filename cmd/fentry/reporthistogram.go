package main

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/trace"
)

// report --histogram shows how the durations of a function's calls are spread. They are counted in buckets of which
// none is wider than 1/64 of its values (trace.Histogram); people see those of each power of two together, programs
// and HdrHistogram's tools see them as they are.

// percentiles are printed below a histogram.
var percentiles = []float64{50, 90, 99, 99.9, 99.99}

// widestBar is the length of the bar of the most frequent power of two.
const widestBar = 40

// writeHistograms prints a histogram of each function that --histogram matches and of which single calls are known.
func (c *reportCmd) writeHistograms(
	a *app, cmd *cobra.Command, t *trace.Trace, rows []trace.FuncStat, less func(a, b trace.FuncStat) int,
) (err error) {
	match, filter, err := matcher(cmd, t, []string{c.histogram}, nil)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(s trace.FuncStat) bool { return !match(s.Func) })
	warnUnmatched(a, t, filter)
	matched := len(rows)
	rows = slices.DeleteFunc(rows, func(s trace.FuncStat) bool { return s.Hist == nil || s.Hist.Count() == 0 })
	if n := matched - len(rows); n > 0 {
		a.notef("fentry: %s: %s without known durations", t.Dir, plural(uint64(n), "function", "functions"))
	}
	slices.SortStableFunc(rows, less)
	if c.top > 0 && len(rows) > c.top {
		rows = rows[:c.top]
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	defer func() { err = out.close(err) }()
	enc := jsonLines(out)
	for i := range rows {
		if i > 0 && !c.json {
			fmt.Fprintln(out)
		}
		switch {
		case c.json:
			err = enc.Encode(newHistogramLine(t, &rows[i]))
		case c.hdr:
			err = writeHDR(out, &rows[i])
		default:
			err = writeHistogram(out, &rows[i])
		}
		if err != nil {
			return err
		}
	}
	c.explain(a, t, rows)
	return nil
}

// writeHistogram prints a line for each power of two from the shortest call to the longest, and percentiles.
func writeHistogram(out *output, s *trace.FuncStat) error {
	calls := plural(s.Calls, "call", "calls")
	if open := s.Calls - min(s.Calls, s.Hist.Count()); open > 0 {
		calls += fmt.Sprintf(" (%s not counted here: without an end)", grouped(open))
	}
	fmt.Fprintf(out, "%s: %s, avg %s, min %s, max %s\n", out.paint.with(sgrBold, printable(s.Name)), calls,
		duration(uint64(s.Avg)), duration(uint64(s.Min)), duration(uint64(s.Max)))
	var octaves [65]uint64 // by the number of bits of a duration
	first, last, most := len(octaves), 0, uint64(0)
	s.Hist.Each(func(low, _ int64, n uint64) {
		o := bits.Len64(uint64(low))
		octaves[o] += n
		first, last, most = min(first, o), o, max(most, octaves[o])
	})
	var tab table
	for _, head := range []string{"FROM", "BELOW", "CALLS", "%"} {
		tab.column(head, true)
	}
	tab.column("", false)
	for o := first; o <= last; o++ {
		from, below := uint64(0), uint64(1)
		if o > 0 {
			from, below = 1<<(o-1), 1<<o
		}
		n := octaves[o]
		tab.row(durationCell(int64(from)), durationCell(int64(min(below, math.MaxInt64))), grouped(n),
			percent(int64(n), int64(s.Hist.Count())), bar(n, most))
	}
	if err := tab.write(out, out.paint); err != nil {
		return err
	}
	var parts []string
	for _, p := range percentiles {
		parts = append(parts, fmt.Sprintf("p%g %s", p, duration(uint64(quantile(s, p/100)))))
	}
	_, err := fmt.Fprintln(out, strings.Join(parts, ", "))
	return err
}

// bar is a line as long as n is of most, at least something if n is not 0.
func bar(n, most uint64) string {
	eighths := int(math.Ceil(float64(n) / float64(most) * widestBar * 8))
	s := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		s += string(rune('█' + 8 - rest)) // U+258F is one eighth, U+2588 is the whole
	}
	return s
}

// quantile is a quantile of calls' durations. The middle of a bucket can lie beyond the longest call.
func quantile(s *trace.FuncStat, q float64) int64 { return min(max(s.Hist.Quantile(q), s.Min), s.Max) }

// writeHDR prints the distribution by percentiles in the text form of HdrHistogram's tools (.hgrm): values in us, the
// share of calls that took no longer, their number, and 1/(1-share).
func writeHDR(out *output, s *trace.FuncStat) error {
	fmt.Fprintf(out, "# %s, in us\n", printable(s.Name))
	fmt.Fprintf(out, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	all := s.Hist.Count()
	var seen uint64
	var buckets int
	s.Hist.Each(func(_, high int64, n uint64) {
		seen += n
		buckets++
		share := float64(seen) / float64(all)
		value := float64(min(high, s.Max)) / 1000
		if seen == all {
			fmt.Fprintf(out, "%12.3f %14.12f %10d\n", value, share, seen)
			return
		}
		fmt.Fprintf(out, "%12.3f %14.12f %10d %14.2f\n", value, share, seen, 1/(1-share))
	})
	_, err := fmt.Fprintf(out, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n"+
		"#[Max     = %12.3f, Total count    = %12d]\n#[Buckets = %12d, SubBuckets     = %12d]\n",
		float64(s.Avg)/1000, s.StdDev/1000, float64(s.Max)/1000, all, buckets, buckets)
	return err
}

// histogramLine is a line of report --histogram --json. Times are in nanoseconds.
type histogramLine struct {
	Name        string            `json:"name"`
	Symbol      string            `json:"symbol,omitempty"`
	Calls       uint64            `json:"calls"`
	Counted     uint64            `json:"counted"` // calls in the buckets: those with an end
	Min         int64             `json:"min_ns"`
	Avg         int64             `json:"avg_ns"`
	Max         int64             `json:"max_ns"`
	Percentiles map[string]int64  `json:"percentiles_ns"`
	Buckets     []histogramBucket `json:"buckets"`
}

// histogramBucket is a number of calls that took From to To, both included.
type histogramBucket struct {
	From  int64  `json:"from_ns"`
	To    int64  `json:"to_ns"`
	Calls uint64 `json:"calls"`
}

func newHistogramLine(t *trace.Trace, s *trace.FuncStat) *histogramLine {
	l := histogramLine{Name: s.Name, Symbol: t.Func(s.Func).Name, Calls: s.Calls, Counted: s.Hist.Count(),
		Min: s.Min, Avg: s.Avg, Max: s.Max, Percentiles: map[string]int64{}}
	for _, p := range percentiles {
		l.Percentiles[fmt.Sprint(p)] = quantile(s, p/100)
	}
	s.Hist.Each(func(low, high int64, n uint64) {
		l.Buckets = append(l.Buckets, histogramBucket{low, high, n})
	})
	return &l
}
