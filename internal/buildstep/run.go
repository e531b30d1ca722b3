package buildstep

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Job is a file and what to do with it.
type Job struct {
	Path    string
	Options Options
}

// Run works on files, up to workers of them at once (0: one a processor), and calls report with the outcome of each in
// their order, from one goroutine at a time. In a recipe of make -j the workers beyond the first need a slot of make's.
func Run(jobs []Job, workers int, report func(i int, o Outcome, err error)) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	n := len(jobs)
	workers = min(workers, n)
	r := reporter{report: report, waiting: map[int]result{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	if n > smallTable {
		wg.Go(func() { widen(min(n, retiredMax())) })
	}
	var next atomic.Int64
	work := func() {
		var keep *retired
		if n > 1 {
			keep = newRetired(workers)
			defer keep.release()
		}
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			o := jobs[i].Options
			o.retired = keep
			out, err := File(jobs[i].Path, o)
			r.done(i, result{out, err})
		}
	}
	if workers <= 1 {
		work()
		return
	}
	slots := openSlots()
	defer slots.close()
	for range workers - 1 {
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
