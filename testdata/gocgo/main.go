// Gocgo calls C that calls Go back, on threads of Go's and on one of its own, and resolves a name by C's library. It prints
// what it has computed, and then how often it has called its functions.
package main

/*
#include <pthread.h>

extern int goCallback(int);

static int calls(int n) { return n ? goCallback(n) + 1 : 0; }
static void *run(void *p) { *(int *)p = goCallback(*(int *)p); return 0; }
static int onThread(int n) {
	pthread_t t;
	if (pthread_create(&t, 0, run, &n))
		return -1;
	pthread_join(t, 0);
	return n;
}
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

var callbacks, grows, gots atomic.Int64

//export goCallback
func goCallback(n C.int) C.int {
	callbacks.Add(1)
	if n%7 == 0 {
		runtime.GC()
	}
	return C.int(grow(int(n) * 20))
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

// got recovers from a panic that C's frames are between.
func got(n int) (r string) {
	gots.Add(1)
	defer func() { r = fmt.Sprint(recover()) }()
	var none []int
	return fmt.Sprint(none[C.calls(C.int(n))])
}

func main() {
	var wg sync.WaitGroup
	sums := make([]int, 8)
	for k := range sums {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 20 {
				sums[k] += int(C.calls(C.int(i))) + int(C.onThread(C.int(i)))
			}
		}()
	}
	wg.Wait()
	_, err := net.LookupHost("localhost")
	fmt.Println(sums, got(3), err)
	fmt.Fprintln(os.Stderr, "main.goCallback", callbacks.Load())
	fmt.Fprintln(os.Stderr, "main.grow", grows.Load())
	fmt.Fprintln(os.Stderr, "main.got", gots.Load())
}
