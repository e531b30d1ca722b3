package trace

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// synthetic writes a trace of about events events a task: a program of 1700
// functions that call each other as programs do, most often the ones they called
// before, 20 levels deep, with calls of 20 ns to 100 us.
func synthetic(tb testing.TB, tasks, events int) string {
	tb.Helper()
	dir := tb.TempDir()
	f, err := os.Create(filepath.Join(dir, EventsFile))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	bw := bufio.NewWriterSize(f, 1<<20)
	w, err := NewWriter(bw, Header{Counter: 1, Monotonic: 1, CounterHz: 2_600_000_000})
	if err != nil {
		tb.Fatal(err)
	}
	list, err := os.Create(filepath.Join(dir, ChunksFile))
	if err != nil {
		tb.Fatal(err)
	}
	defer list.Close()
	w.List = list
	const functions = 1700
	w.WriteImage(Image{ID: testImage, Path: "/bin/prog", Sites: functions})
	players := make([]*player, tasks)
	for i := range players {
		players[i] = &player{
			k:   w.Task(TaskID{PID: 100, TID: 100 + i, Key: uint64(i), Image: testImage, Comm: fmt.Sprintf("task%d", i)}),
			rng: rand.New(rand.NewPCG(uint64(i), 1)), n: functions, now: 1000 + uint64(i),
		}
	}
	// In turns, so that the chunks of the tasks lie mixed as in a real trace.
	for done := 0; done < events; done += 4096 {
		for _, p := range players {
			p.play(min(4096, events-done))
		}
	}
	for _, p := range players {
		if err := p.k.Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := bw.Flush(); err != nil {
		tb.Fatal(err)
	}
	return dir
}

type player struct {
	k     *TaskWriter
	rng   *rand.Rand
	stack []uint32
	now   uint64
	n     int
}

func (p *player) play(events int) {
	for range events {
		r := p.rng.Uint64()
		step := 30 + r&127
		if r>>7&255 == 0 {
			step += r >> 16 & 0x3ffff
		}
		p.now += step
		d := len(p.stack)
		if d == 0 || d < 40 && r>>40&63 < uint64(44-d) {
			top := uint32(1)
			if d > 0 {
				top = p.stack[d-1]
			}
			// A few callees each, of which the first is called most.
			c := r >> 48 & 7
			if c < 4 {
				c = 0
			}
			fn := (top*31+uint32(c)*17)%uint32(p.n) + 1
			p.k.Enter(p.now, fn)
			p.stack = append(p.stack, fn)
		} else {
			p.k.Exit(p.now, p.stack[d-1])
			p.stack = p.stack[:d-1]
		}
	}
}

// benchTraces runs fn on a trace of one task and on one of many.
func benchTraces(b *testing.B, fn func(b *testing.B, t *Trace)) {
	const events = 10_000_000
	for _, tasks := range []int{1, 16, 500} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			t := open(b, synthetic(b, tasks, events/tasks))
			b.ReportAllocs()
			b.ResetTimer()
			start := cpuSeconds()
			for b.Loop() {
				fn(b, t)
			}
			// Of processor time: other work on the machine does not count, garbage
			// collection on other processors does.
			b.ReportMetric(float64(b.N)*events/1e6/(cpuSeconds()-start), "Mevents/cpu-s")
			b.ReportMetric(float64(b.N)*events/1e6/b.Elapsed().Seconds(), "Mevents/s")
		})
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

func BenchmarkReport(b *testing.B) {
	benchTraces(b, func(b *testing.B, t *Trace) {
		if _, err := t.Report(ReportOptions{Workers: 1}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkGraph(b *testing.B) {
	benchTraces(b, func(b *testing.B, t *Trace) {
		if _, err := t.Graph(GraphOptions{Workers: 1}); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkWalk(b *testing.B) {
	benchTraces(b, func(b *testing.B, t *Trace) {
		n := 0
		if err := t.Walk(WalkOptions{}, func(*Event) error { n++; return nil }); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	dir := synthetic(b, 16, 1_000_000)
	b.ResetTimer()
	for b.Loop() {
		t, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		t.Close()
	}
}
