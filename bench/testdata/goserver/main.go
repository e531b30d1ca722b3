// Goserver answers requests of JSON over HTTP, a number of them, that another process of the same program asks. It prints
// a checksum of the answers, and what processor time a request took.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"sync"
	"syscall"
)

type item struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Tags  []string `json:"tags"`
	Price float64  `json:"price"`
}

type answer struct {
	Total float64 `json:"total"`
	Items []item  `json:"items"`
}

//go:noinline
func price(it *item) float64 { return it.Price * float64(1+len(it.Tags)) }

func total(items []item) (t float64) {
	for i := range items {
		t += price(&items[i])
	}
	return t
}

func order(items []item) { sort.Slice(items, func(a, b int) bool { return items[a].ID < items[b].ID }) }

func handle(w http.ResponseWriter, r *http.Request) {
	var in []item
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	order(in)
	json.NewEncoder(w).Encode(answer{total(in), in})
}

const clients = 8

// ask asks n requests of a server and prints a checksum of the answers.
func ask(addr string, n int) error {
	var items []item
	for i := range 20 {
		items = append(items, item{20 - i, fmt.Sprint("item ", i), []string{"a", "b", "c"}, float64(i) * 1.5})
	}
	body, err := json.Marshal(items)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	sums, errs := make([][32]byte, clients), make([]error, clients)
	for c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			h := sha256.New()
			for range n / clients {
				r, err := http.Post("http://"+addr, "application/json", bytes.NewReader(body))
				if err != nil {
					errs[c] = err
					return
				}
				io.Copy(h, r.Body)
				r.Body.Close()
			}
			sums[c] = [32]byte(h.Sum(nil))
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Printf("answers %x\n", sha256.Sum256(fmt.Append(nil, sums)))
	return nil
}

func serve(n int) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := http.Server{Handler: http.HandlerFunc(handle)}
	go s.Serve(l)
	client := exec.Command(os.Args[0], strconv.Itoa(n), l.Addr().String())
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	if err := client.Run(); err != nil {
		return err
	}
	if err := s.Shutdown(context.Background()); err != nil {
		return err
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return err
	}
	fmt.Printf("request %.2f us\n", float64(u.Utime.Nano()+u.Stime.Nano())/float64(n)/1000)
	return nil
}

func main() {
	n, err := strconv.Atoi(os.Args[1])
	switch {
	case err != nil:
	case len(os.Args) > 2:
		err = ask(os.Args[2], n)
	default:
		err = serve(n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
