package trace

import (
	"sync"
	"testing"
)

// TestRemember: the test is asked once about each function, also by several goroutines.
func TestRemember(t *testing.T) {
	asked := map[FuncID]int{}
	even := Remember(func(id FuncID) bool {
		asked[id]++
		return id.ID%2 == 0
	})
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for i := range uint32(100) {
				if even(FuncID{ID: i}) != (i%2 == 0) {
					t.Errorf("wrong answer for %d", i)
				}
			}
		})
	}
	wait.Wait()
	for id, n := range asked {
		if n != 1 {
			t.Errorf("%v: asked %d times", id, n)
		}
	}
	if len(asked) != 100 {
		t.Errorf("asked about %d functions", len(asked))
	}
}
