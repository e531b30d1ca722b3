package buildstep

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// descriptors returns how many descriptors the process has room for, and how many are open.
func descriptors(t *testing.T) (room, open int) {
	t.Helper()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), "FDSize:"); ok {
			if _, err := fmt.Sscan(v, &room); err != nil {
				t.Fatal(err)
			}
		}
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return room, len(list)
}

func TestWidenMakesRoomAndLeavesNothingOpen(t *testing.T) {
	n := min(600, retiredMax())
	_, before := descriptors(t)
	widen(n)
	room, after := descriptors(t)
	if room < n || after != before {
		t.Errorf("room for %d descriptors, want %d; %d open, %d before", room, n, after, before)
	}
	widen(1 << 30) // more than the process may have: nothing happens
	if _, last := descriptors(t); last != before {
		t.Errorf("%d open, %d before", last, before)
	}
}
