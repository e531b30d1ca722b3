//go:build linux && amd64

package fentry_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/trace"
)

// demo is the program of "fentry demo", which is built already: any program that was compiled with -pg,
// -fpatchable-function-entry or -fxray-instrument would do.
const demo = "cmd/fentry/demo/demo.elf"

// What can be traced in a program, and why the rest cannot.
func ExampleOpen() {
	p, err := fentry.Open(demo)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	refused := map[record.Reason]bool{}
	for i := range p.Sites {
		s := &p.Sites[i]
		if !s.Traceable() {
			refused[s.Reason] = true
			continue
		}
		fmt.Println(s.Kind, s.Name)
	}
	fmt.Println("reasons of the others:", len(refused))
	// Output:
	// fentry-call main
	// fentry-call parse_error
	// fentry-call parse_number
	// fentry-call divide
	// fentry-call parse_expression
	// fentry-call parse_factor
	// fentry-call parse_term
	// fentry-call calculate
	// fentry-call next_random
	// fentry-call partition
	// fentry-call quicksort
	// fentry-call sort_numbers
	// fentry-call collatz
	// fentry-call search
	// fentry-call search_in_threads
	// reasons of the others: 2
}

// A test patches the program it tests, runs the copy, which needs nothing of fentry then, and reads what it did.
func ExampleProgram_Plan() {
	dir, err := os.MkdirTemp("", "fentry")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	p, err := fentry.Open(demo)
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	only, err := record.NewFilter([]string{"parse_*"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := p.Plan(patch.Options{Select: only})
	if err != nil {
		log.Fatal(err)
	}
	image, err := plan.Image()
	if err != nil {
		log.Fatal(err)
	}
	traced := filepath.Join(dir, "demo.traced")
	if err := os.WriteFile(traced, image, 0o755); err != nil {
		log.Fatal(err)
	}

	cmd := exec.Command(traced)
	cmd.Dir = dir // for fentry.data
	if out, err := cmd.CombinedOutput(); err != nil {
		log.Fatalf("%v: %s", err, out)
	}

	t, err := trace.Open(filepath.Join(dir, "fentry.data"))
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	rows, err := t.Report(trace.ReportOptions{})
	if err != nil {
		log.Fatal(err)
	}
	slices.SortFunc(rows, func(a, b trace.FuncStat) int { return int(b.Calls) - int(a.Calls) })
	for _, r := range rows {
		fmt.Println(r.Calls, r.Name)
	}
	// Output:
	// 13 parse_factor
	// 10 parse_number
	// 9 parse_term
	// 5 parse_expression
	// 1 parse_error
}

// A program is run traced, and its trace says how long its calls took.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "fentry")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var out bytes.Buffer
	cmd := exec.Command("./" + demo)
	cmd.Stdout = &out
	res, err := fentry.Run(context.Background(), cmd, fentry.Options{Dir: filepath.Join(dir, "fentry.data")})
	if err != nil {
		log.Fatal(err)
	}

	t, err := trace.Open(res.Dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	var took []int64 // ns
	err = t.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Exit && t.Name(ev.Func) == "collatz" {
			took = append(took, ev.Dur)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	slices.Sort(took)
	median, p90 := took[len(took)/2], took[len(took)*9/10]
	fmt.Println("exit status", res.Status.ExitStatus())
	fmt.Println(bytes.Count(out.Bytes(), []byte("\n")), "lines of output,", res.Lost, "events lost")
	fmt.Println(len(took), "calls of collatz; the 90th percentile is above the median:", p90 > median)
	// Output:
	// exit status 0
	// 4 lines of output, 0 events lost
	// 299 calls of collatz; the 90th percentile is above the median: true
}

// A Go test has itself run once more, traced, and looks at what it called. Nothing was compiled for that.
func ExampleRun_goTest() {
	dir, err := os.MkdirTemp("", "fentry")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	own, err := record.NewFilter([]string{record.Own}, nil)
	if err != nil {
		log.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestLibraryPattern$")
	o := fentry.Options{Dir: filepath.Join(dir, "fentry.data"), Plan: patch.Options{Select: own}, Overhead: -1}
	res, err := fentry.Run(context.Background(), cmd, o)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("status", res.Status.ExitStatus())

	t, err := trace.Open(res.Dir)
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	rows, err := t.Report(trace.ReportOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range rows {
		if path, name, ok := strings.Cut(r.Name, ".Test"); ok && name != "Main" {
			fmt.Println(filepath.Base(path), name, r.Calls)
		}
	}
	// Output:
	// status 0
	// fentry LibraryPattern 1
}
