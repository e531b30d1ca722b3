// Goexecutes executes itself: from many goroutines at once, in another directory and session, by a path that leads nowhere,
// and in its own place; if it is to be told, once for each line that it reads. With arguments it is what was executed.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

func main() {
	switch {
	case len(os.Args) > 2:
		fmt.Println("place", os.Args[1])
		if err := syscall.Exec(self(), []string{"self", os.Args[1]}, os.Environ()); err != nil {
			panic(err)
		}
	case len(os.Args) > 1:
		child(os.Args[1])
	case os.Getenv("TOLD") != "":
		told()
	default:
		parent()
	}
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

//go:noinline
func child(arg string) {
	dir, err := os.Getwd()
	fmt.Println("child", arg, dir == "/", err, os.Getenv("GOEXECUTES"))
}

// execute runs a command, which is to end well, and returns what it prints.
//
//go:noinline
func execute(c *exec.Cmd) string {
	out, err := c.CombinedOutput()
	if err != nil {
		panic(fmt.Sprint(err, string(out)))
	}
	return string(out)
}

func told() {
	fmt.Println(os.Getpid())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("done") {
		execute(exec.Command(self(), "told"))
	}
}

func parent() {
	const goroutines, each = 8, 5
	var lines [goroutines]bytes.Buffer
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := range each {
				c := exec.Command(self(), fmt.Sprint(i, k))
				c.Env = []string{fmt.Sprint("GOEXECUTES=", strings.Repeat("x", k))}
				if k%2 == 0 {
					c.Dir, c.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
				}
				lines[i].WriteString(execute(c))
				if err := exec.Command("/no/such/program").Run(); err == nil {
					panic("a program that is not there ends well")
				}
			}
		}()
	}
	wg.Wait()
	for i := range lines {
		fmt.Print(lines[i].String())
	}
	fmt.Print(execute(exec.Command(self(), "last", "in its place")))
}
