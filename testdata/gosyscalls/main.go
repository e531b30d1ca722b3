// Gosyscalls makes system calls from many goroutines and threads, while stacks grow, collections run, signals come and
// programs are executed. With the argument quit it ends by SIGQUIT, and says where its goroutines are; with profile it
// says which functions take its time.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "quit" {
		quit()
	} else if len(os.Args) > 1 {
		profile()
	} else {
		work()
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

//go:noinline
func deep(n int) int {
	var b [64]byte
	if n == 0 {
		return len(b)
	}
	b[n%len(b)] = 1
	return deep(n-1) + int(b[n%len(b)])
}

// goroutine is the number of the running goroutine.
func goroutine() (n uintptr) {
	var b [64]byte
	must(fmt.Sscanf(string(b[:runtime.Stack(b[:], false)]), "goroutine %d ", &n))
	return n
}

// marked makes a system call that has no arguments, with some that say which goroutine makes it.
func marked(goroutine uintptr) {
	second := uintptr(3) // what is in the register of a second result stays there: the third argument
	if runtime.GOARCH == "arm64" {
		second = 2
	}
	if r, r2, err := syscall.RawSyscall6(syscall.SYS_GETEGID, goroutine, 2, 3, 4, 5, 6); r2 != second || err != 0 {
		panic(fmt.Sprint("getegid: ", r, r2, err))
	}
}

//go:noinline
func stat(name string) {
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != syscall.ENOENT {
		panic(err)
	}
}

func work() {
	var signals atomic.Int64
	ch := make(chan os.Signal, 1<<16)
	signal.Notify(ch, syscall.SIGUSR1)
	go func() {
		for range ch {
			signals.Add(1)
		}
	}()
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deep(100)
		fmt.Fprint(w, "hello")
	}))
	var wg sync.WaitGroup
	each := func(n int, f func(i int)) {
		for i := range n {
			wg.Add(1)
			go func() {
				defer wg.Done()
				f(i)
			}()
		}
	}
	each(16, func(i int) {
		for k := range 25 {
			r := must(http.Get("http://" + l.Addr().String()))
			if b := must(io.ReadAll(r.Body)); string(b) != "hello" {
				panic(string(b))
			}
			r.Body.Close()
			if k%10 == 0 {
				runtime.GC()
				deep(1000 * i)
			}
			if k == 20 && i%4 == 0 {
				if out := must(exec.Command("/bin/echo", "x").Output()); string(out) != "x\n" {
					panic(string(out))
				}
			}
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR1); err != nil {
				panic(err)
			}
		}
	})
	each(10, func(int) { // whose threads end with them
		runtime.LockOSThread()
		time.Sleep(time.Millisecond)
		stat("/nonexistent")
	})
	each(8, func(int) {
		for n, k := goroutine(), 0; k < 2000; k++ {
			marked(n)
			if k%10 == 0 {
				runtime.Gosched()
			}
		}
	})
	each(8, func(int) {
		for k := range 1000 {
			syscall.Getppid()
			stat("/nonexistent")
			if k%100 == 0 {
				debug.FreeOSMemory()
			}
		}
	})
	wg.Wait()
	if signals.Load() == 0 {
		panic("no signal has come")
	}
	fmt.Println("newfstatat", 8*1000+10)
	fmt.Println("getppid", 8*1000)
	fmt.Println("getegid", 8*2000)
	fmt.Println("kill", 16*25)
	fmt.Println("execve", 4)
}

//go:noinline
func waits() { syscall.Read(int(must2(os.Pipe()).Fd()), make([]byte, 1)) }

func must2(r, w *os.File, err error) *os.File {
	must(w, err)
	kept = append(kept, r, w)
	return r
}

var kept []*os.File

// quit has the signal come to the first thread while that waits in a system call. To a process the kernel gives it to any.
func quit() {
	pid := syscall.Getpid()
	go func() {
		for !bytes.HasPrefix(must(os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", pid))), []byte("0 ")) { // read
			time.Sleep(10 * time.Millisecond)
		}
		if err := syscall.Tgkill(pid, pid, syscall.SIGQUIT); err != nil {
			panic(err)
		}
	}()
	waits()
}

func init() {
	if len(os.Args) > 1 {
		runtime.LockOSThread()
	}
}

func profile() {
	var buf bytes.Buffer
	if err := pprof.StartCPUProfile(&buf); err != nil {
		panic(err)
	}
	b := make([]byte, 1<<20)
	zero := must(os.Open("/dev/zero"))
	for worked := time.Duration(0); worked < time.Second; {
		for range 100 {
			must(zero.Read(b)) // nearly all in the kernel
		}
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			panic(err)
		}
		worked = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	pprof.StopCPUProfile()
	text := must(io.ReadAll(must(gzip.NewReader(&buf))))
	fmt.Println(bytes.Contains(text, []byte("Syscall6")), bytes.Contains(text, []byte("_ExternalCode")))
}
