package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A bench is everything the tables share.
type bench struct {
	ctx    context.Context
	dir    string // scratch
	fentry string // the built command
	launch string // starts what is measured
	rounds int
	quick  bool
	trace  string // for view
}

var tables = []struct {
	name string
	run  func(*bench) error
}{
	{"call", (*bench).call},
	{"instructions", (*bench).instructions},
	{"off", (*bench).off},
	{"walk", (*bench).walk},
	{"args", (*bench).args},
	{"syscalls", (*bench).syscalls},
	{"attach", (*bench).attach},
	{"control", (*bench).control},
	{"programs", (*bench).programs},
	{"installed", (*bench).installed},
	{"go", (*bench).golang},
	{"patch", (*bench).patch},
	{"read", (*bench).read},
	{"export", (*bench).export},
	{"view", (*bench).view},
	{"mcount", (*bench).mcount},
}

func main() {
	only := flag.String("only", "", "comma separated `tables`: call, instructions, off, walk, args, syscalls, attach, control, programs, installed, go, patch, read, export, view, mcount")
	rounds := flag.Int("rounds", 5, "measure each variant `N` times")
	quick := flag.Bool("quick", false, "small inputs, to try the driver itself")
	dir := flag.String("dir", "", "scratch `directory` on the disk traces shall go to (default a temporary one)")
	data := flag.String("trace", "", "measure the page of the trace in `DIR` (view)")
	flag.Parse()
	if err := run(*only, *rounds, *quick, *dir, *data); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only string, rounds int, quick bool, dir, data string) error {
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: want at least 1", rounds)
	}
	var chosen []string
	if only != "" {
		chosen = strings.Split(only, ",")
		for _, c := range chosen {
			if !slices.ContainsFunc(tables, func(t struct {
				name string
				run  func(*bench) error
			}) bool {
				return t.name == c
			}) {
				return fmt.Errorf("-only: no table %q", c)
			}
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tmp, err := os.MkdirTemp(dir, "fentry-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{ctx: ctx, dir: tmp, fentry: filepath.Join(tmp, "fentry"), rounds: rounds, quick: quick, trace: data}
	if err := b.build(); err != nil {
		return err
	}
	src, err := b.extract("launch.c")
	if err != nil {
		return err
	}
	b.launch = filepath.Join(tmp, "launch")
	if err := b.tool("gcc", "-O2", "-o", b.launch, src); err != nil {
		return err
	}
	fmt.Printf("%s, %d CPUs; %d rounds in turn; median (minimum)\n", cpuModel(), runtime.NumCPU(), rounds)
	for _, p := range [][2]string{{"uftrace", "apt-get install uftrace"}, {"clang", "apt-get install clang, for XRay"}} {
		if !have(p[0]) {
			fmt.Printf("not measured: %s is not installed (%s)\n", p[0], p[1])
		}
	}
	for _, t := range tables {
		if len(chosen) > 0 && !slices.Contains(chosen, t.name) {
			continue
		}
		fmt.Println()
		if err := t.run(b); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

func have(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for _, line := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

// build builds the program as make build does: a dynamic one takes longer to start. What is measured is a copy of it.
// Go's linker writes by a mapping, page by page, and so the page cache keeps the file as long as it is there; of a file
// that was copied or read from the disk it keeps larger pieces, as of what other linkers write, and a page fault maps
// all of one. That is 0.8 of 2.6 ms of a start of fentry mcount.
func (b *bench) build() error {
	linked := b.fentry + ".linked"
	if err := b.tool("env", "CGO_ENABLED=0", "go", "build", "-o", linked, "./cmd/fentry"); err != nil {
		return err
	}
	defer os.Remove(linked)
	return b.tool("cp", linked, b.fentry)
}
