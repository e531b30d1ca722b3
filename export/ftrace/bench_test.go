package ftrace

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// synthetic is a trace of tasks that call 500 functions, calls nested up to 20
// deep, with about events events in all.
func synthetic(b *testing.B, tasks, events int) *trace.Trace {
	var names strings.Builder
	const functions = 500
	for i := range functions {
		fmt.Fprintf(&names, "function_number_%d ", i)
	}
	return build(b, names.String(), func(w *trace.Writer) {
		type player struct {
			k     *trace.TaskWriter
			rng   *rand.Rand
			stack []uint32
			now   uint64
		}
		players := make([]*player, tasks)
		for i := range players {
			id := worker
			id.TID += i
			players[i] = &player{k: w.Task(id), rng: rand.New(rand.NewPCG(uint64(i), 2)), now: 1000}
		}
		for n := 0; n < events; n += 4096 * tasks {
			for _, p := range players {
				for range 4096 {
					r := p.rng.Uint64()
					p.now += 20 + r&255
					if d := len(p.stack); d == 0 || d < 20 && r>>32&1 == 0 {
						fn := uint32(r>>40)%functions + 1
						p.k.Enter(p.now, fn)
						p.stack = append(p.stack, fn)
					} else {
						p.k.Exit(p.now, p.stack[d-1])
						p.stack = p.stack[:d-1]
					}
				}
			}
		}
		for _, p := range players {
			p.k.Flush()
		}
	})
}

// BenchmarkReplay is Walk and formatting: what "fentry replay" does.
func BenchmarkReplay(b *testing.B) {
	const events = 5_000_000
	for _, tasks := range []int{1, 16} {
		t := synthetic(b, tasks, events)
		for name, event := range map[string]func() (func(*trace.Event) error, func() error){
			"graph": func() (func(*trace.Event) error, func() error) {
				g := NewGraph(io.Discard, t, GraphOptions{})
				return g.Event, g.Close
			},
			"function": func() (func(*trace.Event) error, func() error) {
				f := NewFunction(io.Discard, t, FunctionOptions{})
				return f.Event, f.Close
			},
		} {
			b.Run(fmt.Sprintf("%s/tasks=%d", name, tasks), func(b *testing.B) {
				b.ReportAllocs()
				start := cpuSeconds()
				for b.Loop() {
					ev, done := event()
					if err := t.Walk(trace.WalkOptions{}, ev); err != nil {
						b.Fatal(err)
					}
					if err := done(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)*events/1e6/(cpuSeconds()-start), "Mevents/cpu-s")
				b.ReportMetric(float64(b.N)*events/1e6/b.Elapsed().Seconds(), "Mevents/s")
			})
		}
	}
}

// cpuSeconds is the processor time the process has used so far.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
