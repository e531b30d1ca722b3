// Gostress is written in the Go of go1.21, the first version whose programs are traced. It does what Go programs do to
// their stacks, and counts by itself how often it has called each of its functions. It prints what it has computed, and
// then the counts. With a number it has that many goroutines at the same time instead.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Functions that are counted.
const (
	fLeaf = iota
	fFib
	fGrow
	fHuge
	fFloats
	fTable
	fKind
	fArea
	fRadius
	fDefers
	fPanics
	fNilLoad
	fRepanics
	fUnwinds
	fGoexits
	fApply
	fMap
	fWorker
	fSpin
	fLine
	fForward
	fBelow
	fOne
	functions
)

var names = [functions]string{
	"leaf", "fib", "grow", "huge", "floats", "table", "kind", "square.area", "(*circle).area", "defers", "panics", "nilLoad",
	"repanics", "unwinds", "goexits", "apply", "mapped[...]", "worker", "spin", "line",
	"forward", "below", "one",
}

var counts [functions]atomic.Int64

//go:noinline
func leaf(x *int) int {
	counts[fLeaf].Add(1)
	return *x + 1
}

func fib(n int) int {
	counts[fFib].Add(1)
	if n < 2 {
		return leaf(&n)
	}
	return fib(n-1) + fib(n-2)
}

// grow has its stack grow under a pointer into it.
//
//go:noinline
func grow(n int, p *int) int {
	counts[fGrow].Add(1)
	var a [64]int
	a[n%64] = n
	if n == 0 {
		*p++
		return *p
	}
	return grow(n-1, p) + a[n%64]
}

//go:noinline
func huge(n byte) int {
	counts[fHuge].Add(1)
	var a [70000]byte
	for i := range a {
		a[i] = n
	}
	return int(a[n]) + int(a[len(a)-1])
}

//go:noinline
func floats(a float64, b int, s string) (float64, float32, int, string) {
	counts[fFloats].Add(1)
	return a * 2, float32(a / 2), b + 1, s + "x"
}

//go:noinline
func table(i int) string {
	counts[fTable].Add(1)
	switch i {
	case 0:
		return "zero"
	case 1:
		return "one"
	case 2:
		return "two"
	case 3:
		return "three"
	case 4:
		return "four"
	case 5:
		return "five"
	case 6:
		return "six"
	case 7:
		return "seven"
	case 8:
		return "eight"
	}
	return "many"
}

//go:noinline
func kind(v any) string {
	counts[fKind].Add(1)
	switch v := v.(type) {
	case nil:
		return "nil"
	case int:
		return "int"
	case string:
		return v
	case error:
		return v.Error()
	case square:
		return "square"
	}
	return "other"
}

type shape interface{ area() float64 }

type square struct{ side float64 }

type circle struct{ r float64 }

//go:noinline
func (s square) area() float64 {
	counts[fArea].Add(1)
	return s.side * s.side
}

//go:noinline
func (c *circle) area() float64 {
	counts[fRadius].Add(1)
	return c.r * c.r * 3
}

//go:noinline
func defers(n int) (r int) {
	counts[fDefers].Add(1)
	for i := 0; i < n; i++ {
		i := i
		defer func() { r += i }()
	}
	return n
}

//go:noinline
func nilLoad(c *circle) float64 {
	counts[fNilLoad].Add(1)
	return c.r
}

// panics recovers from a fault and says where it was.
//
//go:noinline
func panics(c *circle) (r float64, err error) {
	counts[fPanics].Add(1)
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%v at %s", e, where())
		}
	}()
	return nilLoad(c) + 1, nil
}

// where is the function that has panicked, and its line.
func where() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	for found := false; ; {
		f, more := frames.Next()
		if found && !strings.HasPrefix(f.Function, "runtime.") || !more {
			return fmt.Sprintf("%s:%d", f.Function, f.Line)
		}
		found = found || f.Function == "runtime.sigpanic"
	}
}

//go:noinline
func repanics() (r string) {
	counts[fRepanics].Add(1)
	defer func() { r = fmt.Sprint(recover()) }()
	defer func() { panic(fmt.Sprint("again ", recover())) }()
	panic("once")
}

// unwinds recovers some calls further out than it panics, in a recursion of its own.
//
//go:noinline
func unwinds(n int) (r int) {
	counts[fUnwinds].Add(1)
	defer func() {
		if n%4 == 0 && recover() != nil {
			r = n
		}
	}()
	if n == 11 {
		panic(n)
	}
	return unwinds(n+1) + 1
}

//go:noinline
func goexits(done chan<- int) {
	counts[fGoexits].Add(1)
	defer func() { done <- 1 }()
	func() { runtime.Goexit() }()
}

//go:noinline
func apply(f func(int) int, n int) int {
	counts[fApply].Add(1)
	return f(n)
}

//go:noinline
func mapped[T, U any](in []T, f func(T) U) (out []U) {
	counts[fMap].Add(1)
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}

func worker(in <-chan int, out chan<- int, wg *sync.WaitGroup) {
	counts[fWorker].Add(1)
	defer wg.Done()
	for v := range in {
		x := v
		out <- grow(v%60, &x)
	}
}

// spin calls nothing that looks whether the goroutine is to stop.
//
//go:noinline
func spin(n int) (s int) {
	counts[fSpin].Add(1)
	for i := 0; i < n; i++ {
		s += leaf(&i)
	}
	return s
}

//go:noinline
func line() int {
	counts[fLine].Add(1)
	_, _, n, _ := runtime.Caller(0)
	return n
}

func channels() (sum int) {
	in, out := make(chan int), make(chan int, 5)
	var wg sync.WaitGroup
	for i := 0; i < 8; i++ {
		wg.Add(1)
		go worker(in, out, &wg)
	}
	go func() {
		for i := 0; i < 200; i++ {
			in <- i
		}
		close(in)
		wg.Wait()
		close(out)
	}()
	for v := range out {
		sum += v
	}
	return sum
}

// forward has room for no jump but where its call is.
//
//go:noinline
func forward() { below() }

var belowSaid string

// below has the stack grow and the collector run under that call, and says who has called it.
//
//go:noinline
func below() {
	counts[fForward].Add(1)
	counts[fBelow].Add(1)
	n := 0
	grow(200, &n)
	runtime.GC()
	pcs := make([]uintptr, 8)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for i := 0; i < 2; i++ {
		f, _ := frames.Next()
		belowSaid += fmt.Sprintf(" %s:%d", f.Function, f.Line)
	}
}

// forwarded calls that where the stack is small yet.
func forwarded() (said string) {
	done := make(chan bool)
	go func() {
		forward()
		done <- true
	}()
	<-done
	said, belowSaid = belowSaid, ""
	return said
}

func round(n int) []any {
	a, b, c, d := floats(1.5, n, "s")
	area := 0.0
	for i, s := range []shape{square{2}, &circle{1}, square{3}} {
		area += s.area() * float64(i)
	}
	_, err := panics(nil)
	r, _ := panics(&circle{4})
	done := make(chan int)
	go goexits(done)
	factor := n
	times := func(x int) int { return x * factor }
	method := square{float64(n)}.area
	out := []any{
		fib(8), huge(byte(n)), a, b, c, d, area, defers(n % 5), err, r, repanics(), unwinds(0), <-done, apply(times, 3), method(),
		strings.Join(mapped([]int{1, 5, 20, n}, table), " "), kind(nil), kind(n), kind(errors.New("e")), kind(square{}),
		strings.Join(mapped([]string{"a", "b"}, strings.ToUpper), ""), channels(), spin(20000), line(), forwarded(),
	}
	runtime.GC()
	return out
}

// one is what each of many goroutines does: it waits until all are there.
func one(in *sync.WaitGroup, gate <-chan bool, out chan<- int, n int) {
	counts[fOne].Add(1)
	in.Done()
	<-gate
	out <- leaf(&n)
}

// many has n goroutines at the same time.
func many(n int) (sum int) {
	gate, out := make(chan bool), make(chan int)
	var in sync.WaitGroup
	in.Add(n)
	for i := 0; i < n; i++ {
		go one(&in, gate, out, i)
	}
	in.Wait()
	close(gate)
	for i := 0; i < n; i++ {
		sum += <-out
	}
	return sum
}

func main() {
	rounds := 10
	if len(os.Args) > 2 && os.Args[1] == "rounds" {
		rounds, _ = strconv.Atoi(os.Args[2])
	} else if len(os.Args) > 1 {
		n, _ := strconv.Atoi(os.Args[1])
		fmt.Println(many(n))
		rounds = 0
	}
	for n := 0; n < rounds; n++ {
		fmt.Println(round(n)...)
	}
	for i := range counts {
		fmt.Fprintf(os.Stderr, "main.%s %d\n", names[i], counts[i].Load())
	}
}
