// Gogc measures how long collections take while goroutines call a small function all the time, which does not look by itself
// whether it is to stop, and makes a profile of that.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

//go:noinline
func leaf(n int) int { return n ^ n>>3 }

//go:noinline
func loop(stop *atomic.Bool) (s int) {
	for !stop.Load() {
		for i := range 1000 {
			s += leaf(i)
		}
	}
	return s
}

func main() {
	n, _ := strconv.Atoi(os.Args[1])
	profile, err := os.Create(os.Args[2])
	if err == nil {
		err = pprof.StartCPUProfile(profile)
	}
	if err != nil {
		panic(err)
	}
	var stop atomic.Bool
	done := make(chan int)
	for range 2 {
		go func() { done <- loop(&stop) }()
	}
	var ms []float64
	for range n {
		t := time.Now()
		runtime.GC()
		ms = append(ms, time.Since(t).Seconds()*1000)
	}
	stop.Store(true)
	<-done
	<-done
	pprof.StopCPUProfile()
	slices.Sort(ms)
	fmt.Printf("gc %.3f %.3f\n", ms[len(ms)/2], ms[0])
	fmt.Printf("gcmax %.3f %.3f\n", ms[len(ms)-1], ms[0])
}
