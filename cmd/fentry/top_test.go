package main

import "testing"

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
