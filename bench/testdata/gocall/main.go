// Gocall measures a call of an empty function, and two reads of the time stamp counter.
package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

//go:noinline
func empty(x int) int { return x }

func calls(n int) (s int) {
	for i := range n {
		s += empty(i)
	}
	return s
}

func rdtsc2(n int)

func measure(name string, rounds, n int, f func(n int)) {
	var ns []float64
	for range rounds {
		t := time.Now()
		f(n)
		ns = append(ns, float64(time.Since(t))/float64(n))
	}
	slices.Sort(ns)
	fmt.Printf("%s %.3f %.3f\n", name, ns[len(ns)/2], ns[0])
}

func main() {
	rounds, _ := strconv.Atoi(os.Args[1])
	n, _ := strconv.Atoi(os.Args[2])
	sum := 0
	measure("call", rounds, n, func(n int) { sum += calls(n) })
	measure("rdtsc2", rounds, n, rdtsc2)
	if sum == 1 {
		fmt.Println()
	}
}
