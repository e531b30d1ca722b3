// Gocgo calls C that calls Go back, on threads of Go's and on some of C's own, several deep, with panics that pass C's frames,
// jumps inside C, and handlers of signals in C, and resolves a name by C's library. It prints what it has computed, and
// then how often it has called its functions, those in C included.
package main

/*
#cgo LDFLAGS: -pthread
#include "calls.h"
*/
import "C"

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

var callbacks, panics, grows, gots, recovers atomic.Int64

//export goCallback
func goCallback(n C.int) C.int {
	callbacks.Add(1)
	if n%7 == 0 {
		runtime.GC()
	}
	if n%2 == 0 {
		n += C.calls(n / 4)
	}
	return C.int(grow(int(n) * 20))
}

//go:noinline
//export goPanics
func goPanics(n C.int) C.int {
	panics.Add(1)
	panic("passes C")
}

// grow needs more stack than there is, inside a call from C.
//
//go:noinline
func grow(n int) int {
	grows.Add(1)
	if n == 0 {
		return 0
	}
	var room [64]int
	room[n%64] = grow(n - 1)
	return room[n%64] + 1
}

// got recovers from a panic behind a call of C.
func got(n int) (r string) {
	gots.Add(1)
	defer func() { r = fmt.Sprint(recover()) }()
	var none []int
	return fmt.Sprint(none[C.calls(C.int(n))])
}

// recovered recovers from a panic that C's frames are between.
func recovered(n int) (r string) {
	recovers.Add(1)
	defer func() { r = fmt.Sprint(recover()) }()
	return fmt.Sprint(C.through(C.int(n)))
}

func main() {
	C.handle_signals()
	var wg sync.WaitGroup
	sums := make([]int, 8)
	for k := range sums {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if k%3 == 0 {
				runtime.LockOSThread()
			}
			for i := range 20 {
				sums[k] += int(C.calls(C.int(i))) + int(C.on_thread(C.int(i)))
				sums[k] += int(C.recurse(C.int(10*i))) + int(C.jumps(C.int(i))) + len(recovered(i))
			}
			sums[k] += int(C.storm(10))
		}()
	}
	wg.Wait()
	_, err := net.LookupHost("localhost")
	fmt.Println(sums, got(3), recovered(3), err)
	for name, n := range map[string]*atomic.Int64{
		"goCallback": &callbacks, "main.goCallback": &callbacks, "main.goPanics": &panics, "main.grow": &grows, "main.got": &gots,
		"main.recovered": &recovers,
	} {
		fmt.Fprintln(os.Stderr, name, n.Load())
	}
	for i := range C.int(C.FUNCTIONS) {
		fmt.Fprintln(os.Stderr, C.GoString(C.c_name(i)), C.c_count(i))
	}
}
