package record

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// checkFrames compares the frames that are computed from prologues with what the compiler says of them in .eh_frame:
// how far x29 and x30 are saved below the CFA, which is the caller's stack pointer.
func checkFrames(t *testing.T, on *target, img string, sites []Site) {
	t.Helper()
	testtool.Need(t, on.binutils+"readelf")
	type row struct {
		end uint64 // of the function
		reg map[string]string
	}
	rows := make(map[uint64]row)
	var locs []uint64
	var end uint64
	var columns []string
	for _, line := range strings.Split(run(t, on.binutils+"readelf", "-wF", img), "\n") {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		if _, r, ok := strings.Cut(line, " pc="); ok {
			_, last, _ := strings.Cut(r, "..")
			end, _ = strconv.ParseUint(last, 16, 64)
			continue
		}
		if w[0] == "LOC" {
			columns = w
			continue
		}
		loc, err := strconv.ParseUint(w[0], 16, 64)
		if err != nil || len(w) != len(columns) || len(w[0]) != 16 {
			continue
		}
		r := row{end, make(map[string]string)}
		for i, c := range columns {
			r.reg[c] = w[i]
		}
		rows[loc] = r
		locs = append(locs, loc)
	}
	n := 0
	for _, s := range sites {
		if s.Frame == 0 {
			continue
		}
		best := uint64(0)
		for _, l := range locs {
			if l <= s.Addr && l > best && s.Addr < rows[l].end {
				best = l
			}
		}
		if best < s.Func {
			t.Errorf("%s: readelf shows no frame", s.Name)
			continue
		}
		n++
		r := rows[best].reg
		if want := fmt.Sprintf("c-%d", s.Frame); r["x29"] != want || r["ra"] != fmt.Sprintf("c-%d", s.Frame-8) {
			t.Errorf("%s: frame of %d, the compiler says x29 is at %s, x30 at %s", s.Name, s.Frame, r["x29"], r["ra"])
		}
		if cfa, ok := strings.CutPrefix(r["CFA"], "x29+"); ok && cfa != fmt.Sprint(s.Frame) {
			t.Errorf("%s: frame of %d, the compiler says CFA is x29+%s", s.Name, s.Frame, cfa)
		}
	}
	if n < 8 {
		t.Errorf("%d frames compared", n)
	}
}
