// Gocontrol is a program whose functions are switched off and on while it runs. It calls one of them as often as it is told,
// and all the time others from goroutines that are stopped wherever they are, as the collector runs all the time, too. A
// function that does not return what it should ends it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

//go:noinline
func counted(n int) int { return n + 1 }

//go:noinline
func leaf(a, b int) int { return a*b + 1 }

//go:noinline
func pick(k int, s []int) int {
	switch {
	case k < 0:
		return leaf(-k, 2)
	case k < len(s):
		return s[k]
	}
	return 0
}

func grow(n int) int {
	var room [64]int
	room[n%64] = n
	if n == 0 {
		return 1
	}
	return grow(n-1) + room[n%64] - n
}

//go:noinline
func recovers(p *int) (r int) {
	defer func() {
		if recover() != nil {
			r = -1
		}
	}()
	return *p
}

//go:noinline
func floats(a, b float64) (float64, float64) { return a * b, a + b }

// divide takes its time just before it returns.
//
//go:noinline
func divide(a, b uint64) uint64 { return a / b }

func divides() bool {
	for i := range uint64(2000) {
		if divide(i<<40+i, 1<<40) != i {
			return false
		}
	}
	return true
}

func check(s []int) bool {
	x, y := floats(3, 4)
	return pick(-3, s) == 7 && pick(1, s) == 5 && pick(9, s) == 0 && grow(40) == 1 && recovers(nil) == -1 && recovers(&s[1]) == 5 &&
		x == 12 && y == 7 && divides()
}

func main() {
	fmt.Println(os.Getpid())
	var checked atomic.Int64
	var pause sync.RWMutex
	s := []int{4, 5, 6}
	for range 6 {
		go func() {
			for {
				pause.RLock()
				if !check(s) {
					panic("a function returned something else")
				}
				pause.RUnlock()
				checked.Add(1)
			}
		}()
	}
	go func() {
		for {
			pause.RLock()
			runtime.GC()
			pause.RUnlock()
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var how string
		var n int
		fmt.Sscan(in.Text(), &how, &n)
		switch how {
		case "work":
			go runtime.GC()
			sum := 0
			for range n {
				sum = counted(sum)
			}
			if sum != n {
				panic("a function was not called as often as it should")
			}
		case "check": // they have gone on since
			for was := checked.Load(); checked.Load() < was+int64(n); {
				runtime.Gosched()
			}
		case "pause": // they do not go on, nor does the collector but for once each time that there is work
			pause.Lock()
		}
		fmt.Println("done")
	}
}
