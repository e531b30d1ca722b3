// Gosyscall makes a system call that does little, and prints ns a call, the least of its rounds.
package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	calls, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	least := 1e9
	for range rounds {
		t := time.Now()
		for range calls {
			syscall.Getppid()
		}
		least = min(least, float64(time.Since(t))/float64(calls))
	}
	fmt.Printf("%.2f\n", least)
}
