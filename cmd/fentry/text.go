package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fentry-dev/fentry/internal/safetext"
)

// grouped prints a count with a comma every three digits.
func grouped(n uint64) string {
	s := strconv.FormatUint(n, 10)
	if len(s) <= 3 {
		return s
	}
	b := make([]byte, 0, len(s)+len(s)/3)
	for i := 0; i < len(s); i++ {
		if i > 0 && (len(s)-i)%3 == 0 {
			b = append(b, ',')
		}
		b = append(b, s[i])
	}
	return string(b)
}

// plural prints a count with its noun.
func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(n) + " " + many
}

// duration prints nanoseconds as microseconds, milliseconds or seconds, always
// with three digits behind the point, as the kernel's tracers do.
func duration(ns uint64) string {
	v := float64(ns)
	switch {
	case ns < 1_000_000:
		return fmt.Sprintf("%.3f us", v/1e3)
	case ns < 999_999_500: // from here on milliseconds would print as 1000.000
		return fmt.Sprintf("%.3f ms", v/1e6)
	}
	return fmt.Sprintf("%.3f s", v/1e9)
}

// size prints bytes in powers of 1024.
func size(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), 0
	for v >= 1023.95 && unit < 5 {
		v /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", v, " KMGTP"[unit])
}

// parseDuration reads "10us", "1.5ms", "2s", and 0. Any other number needs its
// unit: ftrace's tracing_thresh counts microseconds, other tracers nanoseconds.
// Callers say in an error what was wrong.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err == nil && d >= 0:
		return d, nil
	case isNumber(s):
		return 0, errors.New("no unit: ns, us, ms or s")
	}
	return 0, errors.New("not a time such as 10us or 1.5ms")
}

// isNumber tells whether s is a number that only a unit makes a time.
func isNumber(s string) bool {
	n, err := strconv.ParseFloat(s, 64)
	return err == nil && n >= 0
}

// durationFlag is an option that parseDuration reads. It is a pflag.Value.
type durationFlag time.Duration

func (d *durationFlag) String() string { return time.Duration(*d).String() }
func (d *durationFlag) Type() string   { return "TIME" }
func (d *durationFlag) Set(s string) error {
	v, err := parseDuration(s)
	if err == nil {
		*d = durationFlag(v)
	}
	return err
}

// jsonLines writes JSON objects, one a line, whose text controls no terminal.
func jsonLines(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(safetext.JSONWriter(w))
	enc.SetEscapeHTML(false)
	return enc
}

// printable replaces control characters.
func printable(s string) string { return safetext.Line(s) }

// table prints rows in aligned columns. Left columns are names, right ones
// numbers; the last column is never padded.
type table struct {
	head  []string
	right []bool
	rows  [][]string
}

// column adds a column; right-aligned when numeric.
func (t *table) column(name string, numeric bool) {
	t.head = append(t.head, name)
	t.right = append(t.right, numeric)
}

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// write prints the table. The heading is bold where colours are on.
func (t *table) write(w io.Writer, p paint) error {
	width := make([]int, len(t.head))
	for i, h := range t.head {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range t.rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	if o, ok := w.(*output); ok && o.width > 0 {
		t.fit(width, o.width)
	}
	line := func(cells []string) string {
		var b strings.Builder
		for i, c := range cells {
			c = keepEnd(c, width[i])
			pad := width[i] - utf8.RuneCountInString(c)
			if i > 0 {
				b.WriteString("  ")
			}
			if t.right[i] {
				b.WriteString(strings.Repeat(" ", pad))
				b.WriteString(c)
				continue
			}
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", pad))
			}
		}
		return strings.TrimRight(b.String(), " ")
	}
	if _, err := fmt.Fprintln(w, p.with(sgrBold, line(t.head))); err != nil {
		return err
	}
	for _, r := range t.rows {
		if _, err := fmt.Fprintln(w, line(r)); err != nil {
			return err
		}
	}
	return nil
}

// narrowest is how many columns of a name are shown at least.
const narrowest = 16

// fit makes columns of names narrower, the widest first, until a line has room in a terminal's width; numbers are never
// cut.
func (t *table) fit(width []int, room int) {
	over := 2*(len(width)-1) - room
	for _, w := range width {
		over += w
	}
	for over > 0 {
		widest := -1
		for i, w := range width {
			if !t.right[i] && w > narrowest && (widest < 0 || w > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		next := narrowest // the width of the column that is the widest then
		for i, w := range width {
			if i != widest && !t.right[i] {
				next = max(next, min(w, width[widest]-1))
			}
		}
		cut := min(over, width[widest]-next)
		width[widest] -= cut
		over -= cut
	}
}

// keepEnd cuts text to a number of columns. The end is kept: names differ there, while they share their namespaces.
func keepEnd(s string, columns int) string {
	n := utf8.RuneCountInString(s)
	if n <= columns || columns < 1 {
		return s
	}
	for skip := n - columns + 1; skip > 0; skip-- {
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	return "…" + s
}

// durationCell is a duration for a column of a table: all units are two wide.
func durationCell(ns int64) string {
	s := duration(uint64(max(ns, 0)))
	if strings.HasSuffix(s, " s") {
		s += " "
	}
	return s
}
