package main

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTopColumns: on a narrow terminal, names are worth more than columns; what the table is sorted by goes last.
func TestTopColumns(t *testing.T) {
	cells := [topCells]string{"1,000", "20.0 %", "10.0 %", "1.000 us"}
	for _, test := range []struct {
		width int
		sort  string
		want  string
	}{
		{0, "self", "         1,000   20.0 %   10.0 %     1.000 us  f"},
		{71, "self", "         1,000   20.0 %   10.0 %     1.000 us  f"},
		{70, "self", "         1,000   20.0 %   10.0 %  f"},
		{57, "calls", "         1,000   10.0 %  f"},
		{48, "self", "   10.0 %  f"},
		{48, "total", "   20.0 %   10.0 %  f"},
		{39, "calls", "         1,000  f"},
		{19, "self", "   10.0 %  f"},
		{18, "self", "  f"},
		{1, "total", "  f"},
	} {
		if got := topColumnsIn(test.width, test.sort).line(cells, "f"); got != test.want {
			t.Errorf("%d columns by %s: %q, want %q", test.width, test.sort, got, test.want)
		}
	}
}

// TestTopResized: the table is drawn again when the terminal has another size, and only then.
func TestTopResized(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	var out strings.Builder
	w := &topWriter{c: &topCmd{sort: "self"}, to: &out, buf: bufio.NewWriter(&out), terminal: terminal, tables: 1}
	w.shown.head = "3 events in 1 s, 1 thread"
	for _, name := range []string{"a_function", "another_one"} {
		w.shown.rows = append(w.shown.rows, topRow{[topCells]string{"1", "2.0 %", "3.0 %", "4.000 us"}, name})
	}
	for i, test := range []struct {
		rows, columns uint16
		want          string
	}{
		{24, 80, "\x1b[2J\x1b[H3 events in 1 s, 1 thread\x1b[K\n" +
			"       CALLS/S    TOTAL     SELF          AVG  FUNCTION\x1b[K\n" +
			"             1    2.0 %    3.0 %     4.000 us  a_function\x1b[K\n" +
			"             1    2.0 %    3.0 %     4.000 us  another_one\x1b[K\n\x1b[J"},
		{24, 80, ""},
		{5, 20, "\x1b[2J\x1b[H3 events in 1 s, 1 t\x1b[K\n     SELF  FUNCTION\x1b[K\n    3.0 %  a_functio\x1b[K\n\x1b[J"},
		{5, 20, ""},
	} {
		out.Reset()
		err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: test.rows, Col: test.columns})
		if err == nil {
			err = w.resized()
		}
		if err != nil || out.String() != test.want {
			t.Errorf("%d: %q, %v, want %q", i, out.String(), err, test.want)
		}
	}
}

// TestTopEnds: what is left of an interval at the end does not take the last table's place on a terminal. Elsewhere it
// follows, and it is better than nothing.
func TestTopEnds(t *testing.T) {
	terminal, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, test := range []struct {
		terminal *os.File
		tables   int
		took     time.Duration // since the last table
		shown    bool
	}{
		{terminal, 1, time.Second, false},
		{terminal, 1, 2 * time.Second, true},
		{terminal, 0, time.Second, true},
		{nil, 1, time.Second, true},
		{nil, 1, 0, false},
	} {
		var out strings.Builder
		w := &topWriter{c: &topCmd{interval: 2 * time.Second}, to: &out, buf: bufio.NewWriter(&out), terminal: test.terminal,
			tables: test.tables, newest: int64(test.took)}
		if err := w.end(true); err != nil || (out.Len() > 0) != test.shown {
			t.Errorf("%+v: %q, %v", test, out.String(), err)
		}
	}
}
