// Goload starts a server, asks it for pages as fast as it answers, and ends it: goload ADDRESS REQUESTS COMMAND... It prints a
// checksum of the answers, how many requests a second were answered, and what processor time of the server each took, in us.
// What records the server may be what is started.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const clients = 8

var pages = []string{"/a.html", "/b/c.txt", "/b/", "/none"}

// ask asks for n pages and returns a checksum of what was answered to each.
func ask(addr string, n int) ([sha256.Size]byte, error) {
	var (
		all sync.WaitGroup
		mu  sync.Mutex
		bad error
	)
	said := make([][sha256.Size]byte, n)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections() // a server that ends waits for them
	for c := range clients {
		all.Go(func() {
			for i := c; i < n; i += clients {
				body, err := get(client, "http://"+addr+pages[i%len(pages)])
				if err != nil {
					mu.Lock()
					bad = errors.Join(bad, err)
					mu.Unlock()
					return
				}
				said[i] = sha256.Sum256(body)
			}
		})
	}
	all.Wait()
	sum := sha256.New()
	for i := range said {
		sum.Write(said[i][:])
	}
	return [sha256.Size]byte(sum.Sum(nil)), bad
}

func get(client *http.Client, url string) ([]byte, error) {
	ask, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	ask.Header.Set("Accept", "application/json") // lists of files in HTML have a number of their own each
	r, err := client.Do(ask)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return fmt.Append(body, r.StatusCode), err
}

// server is the process that answers: what was started, or its child if that records it, which has the end of its arguments.
func server(started int) (pid string) {
	pid = strconv.Itoa(started)
	argv, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	threads, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, t := range threads {
		children, _ := os.ReadFile(t)
		for _, child := range strings.Fields(string(children)) {
			if of, _ := os.ReadFile("/proc/" + child + "/cmdline"); len(of) > 0 && len(of) < len(argv) && bytes.HasSuffix(argv, of) {
				return child
			}
		}
	}
	return pid
}

// used is how much processor time a process has used.
func used(pid string) (time.Duration, error) {
	const tick = time.Second / 100 // USER_HZ
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err := strconv.ParseInt(f[11], 10, 64) // utime and stime, fields 14 and 15
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}

func wait(addr string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

func run(addr string, n int, argv []string) (err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := ""
	defer func() {
		if p, e := strconv.Atoi(pid); e == nil {
			syscall.Kill(p, syscall.SIGINT)
		} else {
			cmd.Process.Kill()
		}
		err = errors.Join(err, cmd.Wait())
	}()
	if err := wait(addr); err != nil {
		return err
	}
	pid = server(cmd.Process.Pid)
	if _, err := ask(addr, n/10); err != nil { // it warms up
		return err
	}
	before, err := used(pid)
	if err != nil {
		return err
	}
	began := time.Now()
	sum, err := ask(addr, n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := used(pid)
	if err != nil {
		return err
	}
	fmt.Printf("answers %x\n", sum)
	fmt.Printf("rate %.1f %.1f\n", float64(n)/took.Seconds(), float64(n)/took.Seconds())
	each := float64(after-before) / float64(time.Microsecond) / float64(n)
	fmt.Printf("each %.2f %.2f\n", each, each)
	return nil
}

func main() {
	n, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = run(os.Args[1], n, os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "goload:", err)
		os.Exit(1)
	}
}
