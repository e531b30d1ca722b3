package arm64

import (
	"math/rand/v2"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestRows compares words of every row, and their neighbours in which one bit is
// not as the row wants it, with objdump.
func TestRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	n := 60
	if testtool.Wide() {
		n = 2000
	}
	var words []uint32
	for _, row := range rows {
		for range n {
			w := r.Uint32()&^row.mask | row.value
			words = append(words, w, w^1<<r.IntN(32))
		}
		words = append(words, row.value, row.value|^row.mask)
	}
	known := compareWords(t, words)
	t.Logf("%d of %d words known to both", known, len(words))
	if known < len(words)/2 {
		t.Errorf("only %d of %d words known to both", known, len(words))
	}
}

// TestRandomWords compares words nobody wrote.
func TestRandomWords(t *testing.T) {
	n := 150_000
	if testtool.Wide() {
		n = 4_000_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for left := n; left > 0; {
		words := make([]uint32, min(left, 500_000))
		for i := range words {
			words[i] = r.Uint32()
		}
		known += compareWords(t, words)
		left -= len(words)
	}
	t.Logf("%d of %d words known to both", known, n)
	if known < n/3 {
		t.Errorf("only %d of %d words known to both", known, n)
	}
}

// Each word has one class, whatever the order of the rows: where two match, the later
// one has every bit of the earlier one's mask.
func TestRowsNest(t *testing.T) {
	for i, a := range rows {
		if a.value&^a.mask != 0 {
			t.Errorf("row %d: value %08x outside mask %08x", i, a.value, a.mask)
		}
		for j, b := range rows[i+1:] {
			if both := a.mask & b.mask; a.value&both == b.value&both && a.mask&^b.mask != 0 {
				t.Errorf("rows %d and %d overlap", i, i+1+j)
			}
		}
	}
}
