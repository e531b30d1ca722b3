// Package parallel spreads independent pieces of work over the processors.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Do calls do(0) to do(n-1) on as many goroutines as there are processors, and returns when all are done.
func Do(n int, do func(int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// Ranges cuts [0, n) into pieces of size and calls do for each of them, as [Do] does.
func Ranges(n, size int, do func(from, to int)) {
	Do((n+size-1)/size, func(k int) { do(k*size, min((k+1)*size, n)) })
}
