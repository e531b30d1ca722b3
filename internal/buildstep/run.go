package buildstep

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Run works on n files with up to jobs workers at once (0: one a processor) and calls report with the outcome of each,
// in the order of the files, from one goroutine at a time. In a recipe of make -j the workers beyond the first wait
// for a slot of make's.
func Run(n int, jobs int, do func(i int) (Outcome, error), report func(i int, o Outcome, err error)) {
	if jobs <= 0 {
		jobs = runtime.GOMAXPROCS(0)
	}
	jobs = min(jobs, n)
	if jobs <= 1 {
		for i := range n {
			o, err := do(i)
			report(i, o, err)
		}
		return
	}
	r := reporter{report: report, waiting: map[int]result{}}
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			o, err := do(i)
			r.done(i, result{o, err})
		}
	}
	slots := openSlots()
	var wg sync.WaitGroup
	for range jobs - 1 {
		release, ok := slots.acquire()
		if !ok {
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer release()
			work()
		}()
	}
	work()
	wg.Wait()
	slots.close()
}

type result struct {
	o   Outcome
	err error
}

// reporter puts results in order.
type reporter struct {
	mu      sync.Mutex
	report  func(i int, o Outcome, err error)
	next    int
	waiting map[int]result
}

func (r *reporter) done(i int, res result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[i] = res
	for {
		res, ok := r.waiting[r.next]
		if !ok {
			return
		}
		delete(r.waiting, r.next)
		r.report(r.next, res.o, res.err)
		r.next++
	}
}
