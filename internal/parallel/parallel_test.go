package parallel_test

import (
	"sync/atomic"
	"testing"

	"github.com/fentry-dev/fentry/internal/parallel"
)

func TestDoCallsEachOnce(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		calls := make([]atomic.Int32, n)
		parallel.Do(n, func(i int) { calls[i].Add(1) })
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("n=%d: %d called %d times", n, i, got)
			}
		}
	}
}

func TestRangesCoverAll(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 100} {
		calls := make([]atomic.Int32, n)
		parallel.Ranges(n, 8, func(from, to int) {
			if to-from > 8 || from >= to {
				t.Errorf("n=%d: range [%d, %d)", n, from, to)
			}
			for i := from; i < to; i++ {
				calls[i].Add(1)
			}
		})
		for i := range calls {
			if got := calls[i].Load(); got != 1 {
				t.Errorf("n=%d: %d in %d ranges", n, i, got)
			}
		}
	}
}
