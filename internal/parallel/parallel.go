// Package parallel spreads independent pieces of work over the processors.
package parallel

import (
	"sync"
	"sync/atomic"

	"github.com/fentry-dev/fentry/internal/mapped"
)

// Do calls do(0) to do(n-1) on as many goroutines as there are processors, and returns when all are done. A fault in a
// mapped file ends the work, and arrives at the caller, as if do had been called there (package mapped).
func Do(n int, do func(int)) {
	workers := min(n, Processors())
	if workers <= 1 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var relay mapped.Relay
	for range workers {
		wg.Go(func() {
			relay.Run(func() {
				for i := int(next.Add(1)) - 1; i < n && !relay.Failed(); i = int(next.Add(1)) - 1 {
					do(i)
				}
			})
		})
	}
	wg.Wait()
	relay.Raise()
}

// Ranges cuts [0, n) into pieces of size and calls do for each of them, as [Do] does.
func Ranges(n, size int, do func(from, to int)) {
	Do((n+size-1)/size, func(k int) { do(k*size, min((k+1)*size, n)) })
}

// Beside calls do on a goroutine of its own. wait returns when it is done, however often it is called; a fault in a
// mapped file arrives there.
func Beside(do func()) (wait func()) {
	var wg sync.WaitGroup
	var relay mapped.Relay
	wg.Go(func() { relay.Run(do) })
	return func() {
		wg.Wait()
		relay.Raise()
	}
}
