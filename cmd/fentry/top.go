package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/hot"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/trace"
)

type topCmd struct {
	watchFlags
	interval time.Duration
	count    int
	lines    int
	batch    bool
	sort     string
}

func newTopCmd(a *app) *cobra.Command {
	c := topCmd{interval: 2 * time.Second}
	cmd := &cobra.Command{
		Use:   "top [options] {[--] PROGRAM [args...] | -p PROCESS}",
		Short: "show which functions are hottest, while they run",
		Long: `top runs a program, or attaches to processes that run already, and shows every two
seconds which of their functions are called most or take most of the time. Options
that say what is recorded are those of record.

CALLS/S is how often a function is called in a second. TOTAL is the part of the time in
which a call of it is open, SELF that in which it does not wait for a function that it
has called and that is recorded; threads are added up, so two can make 200 %. Calls that
have not ended count, too. AVG is how long the calls took that ended.

The program never waits for top. Where events came too fast to be looked at, the first
line says of how much of the time nothing is known, and the figures are extrapolated.

On a terminal the table is drawn again in its place, also when its size changes, with the
columns that there is room for beside names; otherwise, or with -b, one table follows
the other. top ends with the program, and as it does; or with ^C, -n, --for, or when
nobody reads its output any more: the program then goes on without it. The last table
of a whole interval stays on the terminal.`,
		Example: `  fentry top ./prog
  fentry top -p 1234 -s calls
  fentry top -p nginx -b -n 3 -i 1s         three tables, for a file or a pipe`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	f := cmd.Flags()
	f.BoolVarP(&c.batch, "batch", "b", false, "print one table after the other")
	c.watchFlags.add(cmd, "")
	f.VarP((*durationFlag)(&c.interval), "interval", "i", "show what happened in each `TIME`, such as 500ms")
	f.IntVarP(&c.count, "count", "n", 0, "end after `N` tables; 0: none is the last")
	f.IntVarP(&c.lines, "lines", "l", 0, "show `N` functions; 0: as many as fit, or 20")
	f.StringVarP(&c.sort, "sort", "s", "self", "sort by `KEY`: "+strings.Join(topKeys, ", "))
	cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(topKeys, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// topKeys are the values of --sort.
var topKeys = []string{"self", "total", "calls"}

func (c *topCmd) run(a *app, cmd *cobra.Command, args []string) error {
	switch {
	case !slices.Contains(topKeys, c.sort):
		return usagef(cmd, "--sort: no key %q; there are %s", c.sort, strings.Join(topKeys, ", "))
	case c.interval < topLook:
		return usagef(cmd, "--interval %v: at least %v", c.interval, topLook)
	case c.count < 0 || c.lines < 0:
		return usagef(cmd, "--count and --lines are not below 0")
	}
	if c.tracer == patch.Function.String() && !cmd.Flags().Changed("sort") {
		c.sort = "calls"
	}
	w := &topWriter{c: c, to: a.stdout, paint: paint(a.colors(a.stdout)), from: -1}
	if f, ok := a.stdout.(*os.File); ok && isTerminal(f) && !c.batch {
		w.terminal = f
	}
	w.buf = bufio.NewWriter(w.to)
	return c.watchFlags.run(a, cmd, args, w)
}

// topLook is how often events are looked at.
const topLook = 50 * time.Millisecond

// topWriter counts events, and prints tables.
type topWriter struct {
	c        *topCmd
	to       io.Writer
	buf      *bufio.Writer
	paint    paint
	terminal *os.File // nil: it is none, or not to be used as one

	hot    hot.Counter
	from   int64     // where the interval begins; -1: there was no look yet
	since  time.Time // when that was
	until  int64     // of the look
	looked time.Time // when that was
	newest int64     // event
	events uint64
	tables int
	t      *trace.Trace

	shown topTable
}

// topTable is what a table says, in as many lines as any terminal has.
type topTable struct {
	head          string
	rows          []topRow
	width, height int // of the terminal that it was drawn on; 0: it was not
}

// topRow is a function.
type topRow struct {
	cells [topCells]string
	name  string
}

// topMost bounds the rows that a table keeps.
const topMost = 1000

func (w *topWriter) begin(t *trace.Trace, until int64) {
	w.t, w.until, w.looked = t, until, time.Now()
	if w.from < 0 {
		w.from, w.since = until, w.looked
		w.hot.Begin(until)
	}
}

func (w *topWriter) event(ev *trace.Event) error {
	w.hot.Event(ev)
	w.events++
	w.newest = max(w.newest, ev.Time)
	return nil
}

func (w *topWriter) end(over bool) error {
	if pipeClosed(w.to) {
		return syscall.EPIPE
	}
	if over {
		w.until = w.newest
	}
	if whole := w.until-w.from >= int64(w.c.interval); !whole && (!over || w.until <= w.from) {
		return w.resized()
	} else if !whole && w.terminal != nil && w.tables > 0 {
		return nil // what is left of an interval does not replace the last table
	}
	if err := w.table(); err != nil {
		return err
	}
	w.from, w.since, w.events = w.until, w.looked, 0
	w.hot.Begin(w.from)
	if w.tables++; w.tables == w.c.count {
		return errEnoughSeen
	}
	return nil
}

// table prints what happened in the interval.
func (w *topWriter) table() error {
	rows := w.hot.Rows(w.until)
	slices.SortStableFunc(rows, func(a, b hot.Row) int {
		switch w.c.sort {
		case "calls":
			return cmp.Compare(b.Calls, a.Calls)
		case "total":
			return cmp.Compare(b.Total, a.Total)
		}
		return cmp.Compare(b.Self, a.Self)
	})
	span := w.until - w.from
	head := fmt.Sprintf("%s in %s, %s", plural(w.events, "event", "events"), duration(uint64(span)),
		plural(uint64(w.hot.Threads()), "thread", "threads"))
	if w.hot.Gaps > 0 {
		all := float64(span) * float64(max(1, w.hot.Threads()))
		head += fmt.Sprintf("; nothing is known of %.1f %% of the time", min(100, 100*float64(w.hot.Gaps)/all))
	}
	w.shown.head, w.shown.rows = head, w.shown.rows[:0]
	for _, r := range rows[:min(max(topMost, w.c.lines), len(rows))] {
		w.shown.rows = append(w.shown.rows, topRow{w.cells(&r), w.t.Label(r.Func)})
	}
	return w.draw(w.size())
}

// size is that of the terminal; 0: there is none, or nobody knows.
func (w *topWriter) size() (width, height int) {
	if w.terminal == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(w.terminal.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// resized draws the table again if the terminal has another size.
func (w *topWriter) resized() error {
	width, height := w.size()
	if w.tables == 0 || width == w.shown.width && height == w.shown.height {
		return nil
	}
	return w.draw(width, height)
}

// draw prints the table.
func (w *topWriter) draw(width, height int) error {
	lines := cmp.Or(w.c.lines, 20)
	if height > 0 {
		lines = min(cmp.Or(w.c.lines, height), max(1, height-4))
	}
	switch {
	case w.terminal == nil && w.tables > 0:
		w.buf.WriteByte('\n')
	case w.terminal != nil && (width != w.shown.width || height != w.shown.height || w.tables == 0):
		w.buf.WriteString("\x1b[2J\x1b[H") // erase, home
	case w.terminal != nil:
		w.buf.WriteString("\x1b[H") // home: each line replaces the one that was there
	}
	w.shown.width, w.shown.height = width, height
	columns := topColumnsIn(width, w.c.sort)
	w.line(cutTo(w.shown.head, width), "")
	w.line(cutTo(columns.line(topTitles, "FUNCTION"), width), sgrBold)
	for _, r := range w.shown.rows[:min(lines, len(w.shown.rows))] {
		w.line(cutTo(columns.line(r.cells, r.name), width), "")
	}
	if w.terminal != nil {
		w.buf.WriteString("\x1b[J") // erase what is below
	}
	return w.buf.Flush()
}

// line writes a line, in a colour if it is not "".
func (w *topWriter) line(s, color string) {
	if color != "" {
		s = w.paint.with(color, s)
	}
	w.buf.WriteString(s)
	if w.terminal != nil {
		w.buf.WriteString("\x1b[K") // erase the rest of it
	}
	w.buf.WriteByte('\n')
}

// The columns in front of the functions' names.
const (
	topCalls = iota
	topTotal
	topSelf
	topAvg
	topCells
)

var (
	topTitles = [topCells]string{"CALLS/S", "TOTAL", "SELF", "AVG"}
	topWidths = [topCells]int{14, 9, 9, 13}
)

// topColumns are the columns that there is room for.
type topColumns [topCells]bool

// How much of a name is worth more than another column, and than the one that is sorted by.
const (
	topName     = 24
	topNameLeft = 8
)

// topColumnsIn are those that leave room for names on a terminal; 0: it is none. The one that is sorted by goes last.
func topColumnsIn(width int, sort string) topColumns {
	c := topColumns{true, true, true, true}
	if width == 0 {
		return c
	}
	by := map[string]int{"self": topSelf, "total": topTotal, "calls": topCalls}[sort]
	for _, i := range []int{topAvg, topTotal, topCalls, topSelf} {
		if i != by && c.width()+topName > width {
			c[i] = false
		}
	}
	c[by] = c.width()+topNameLeft <= width
	return c
}

// width is how much of a line is in front of a name.
func (c topColumns) width() int {
	n := 2
	for i, on := range c {
		if on {
			n += topWidths[i]
		}
	}
	return n
}

// line is a line of the table.
func (c topColumns) line(cells [topCells]string, name string) string {
	var b strings.Builder
	for i, on := range c {
		if on {
			fmt.Fprintf(&b, "%*s", topWidths[i], cells[i])
		}
	}
	return b.String() + "  " + name
}

// cells are what a function's line has in front of its name.
func (w *topWriter) cells(r *hot.Row) [topCells]string {
	part := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	total, self, avg := part(r.Total), part(r.Self), "-"
	if w.c.tracer == patch.Function.String() {
		total, self = "-", "-"
	} else if r.Avg >= 0 {
		avg = durationCell(int64(r.Avg))
	}
	return [topCells]string{grouped(uint64(r.Calls + 0.5)), total, self, avg}
}

// cutTo cuts a line to the width of a terminal; 0: none.
func cutTo(s string, width int) string {
	if r := []rune(s); width > 0 && len(r) > width {
		return string(r[:width])
	}
	return s
}

// due is a look for a table: what it says of calls that are open changes with time.
func (w *topWriter) due() bool { return time.Since(w.since) >= w.c.interval }

func (w *topWriter) wait(done <-chan struct{}) { pause(topLook, done) }
