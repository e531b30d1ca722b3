package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
)

// What the beginning and the end of a system call with its arguments may add to it, in ns: if it is recorded, and if others
// are.
const wantedSyscall, wantedSyscallOff = 40, 3

// A callCost is a way to run a program that makes a system call again and again, and prints ns a call, the least of its rounds.
type callCost struct {
	name   string
	argv   []string
	of     *callCost // what it is compared with
	wanted float64
	ns     float64
	failed error
}

// syscalls prints what recording system calls costs: one of them, and whole runs of programs that make little else.
func (b *bench) syscalls() error {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not measured: system calls are moved on x86-64")
		return nil
	}
	if err := b.syscall(); err != nil {
		return err
	}
	python, err := b.extract("files.py")
	if err != nil {
		return err
	}
	calls := "200000"
	if b.quick {
		calls = "2000"
	}
	for _, argv := range [][]string{{"du", "-s", "/usr/share"}, {"/usr/bin/python3", "-S", python, calls}} {
		if !have(argv[0]) {
			fmt.Printf("not measured: %s is not installed\n", argv[0])
			continue
		}
		if err := b.syscallRun(argv); err != nil {
			return err
		}
	}
	return nil
}

// syscall prints what a system call costs that does little, in C and in Go.
func (b *bench) syscall() error {
	src, err := b.extract("syscall.c")
	if err != nil {
		return err
	}
	c := filepath.Join(b.dir, "syscall")
	if err := b.tool("gcc", "-O2", "-o", c, src); err != nil {
		return err
	}
	golang, err := b.buildGo("gosyscall")
	if err != nil {
		return err
	}
	data, rounds, calls := filepath.Join(b.dir, "syscall.data"), "15", "20000"
	if b.quick {
		rounds, calls = "2", "1000"
	}
	var all []*callCost
	for _, p := range []struct{ name, program string }{{"C", c}, {"Go", golang}} {
		argv := []string{p.program, calls, rounds}
		plain := &callCost{name: p.name + ", untraced", argv: argv}
		add := func(name string, wanted float64, tracer ...string) {
			all = append(all, &callCost{name: p.name + ", " + name, argv: append(tracer, argv...), of: plain, wanted: wanted})
		}
		all = append(all, plain)
		record := []string{b.fentry, "record", "-q", "--overhead", "no", "-o", data, "-F", "none"}
		add("fentry record --syscalls -F none", wantedSyscall, append(record, "--syscalls")...)
		add("fentry record --syscalls=openat -F none", wantedSyscallOff, append(record, "--syscalls=openat")...)
		for _, peer := range b.syscallPeers() {
			add(peer.name, 0, peer.argv...)
		}
	}
	if err := b.callCosts(all, data); err != nil {
		return err
	}
	fmt.Println("A system call (getppid), in ns: the least of all rounds, and what is more than untraced")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ns\tmore\twanted\t\t")
	for _, r := range all {
		if r.failed != nil {
			continue
		}
		more, wanted := "", ""
		if r.of != nil {
			more = fmt.Sprintf("%.1f", r.ns-r.of.ns)
		}
		if r.wanted > 0 {
			wanted = fmt.Sprintf("<= %.0f", r.wanted)
		}
		fmt.Fprintf(w, "%.1f\t%s\t%s\t %s\t\n", r.ns, more, wanted, r.name)
	}
	return w.Flush()
}

// callCosts runs programs in turn. A peer that fails is left out.
func (b *bench) callCosts(all []*callCost, data string) error {
	for _, r := range all {
		r.ns = math.Inf(1)
	}
	for round := range b.rounds {
		for _, r := range from(all, round) {
			if r.failed != nil {
				continue
			}
			s, err := b.run(job{argv: r.argv, out: true})
			if err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old")); err != nil {
				return err
			}
			var ns float64
			if err == nil {
				ns, err = strconv.ParseFloat(strings.TrimSpace(s.out), 64)
			}
			if err != nil && (r.of == nil || r.wanted > 0 || b.ctx.Err() != nil) {
				return err
			}
			if r.failed = err; err != nil {
				fmt.Printf("not measured: %s: %s\n", r.name, firstLine(err))
				continue
			}
			r.ns = min(r.ns, ns)
		}
	}
	return nil
}

// A syscallPeer is another tracer of system calls, in front of a command.
type syscallPeer struct {
	name string
	argv []string
}

func (b *bench) syscallPeers() (peers []syscallPeer) {
	log := filepath.Join(b.dir, "peer.log")
	for _, argv := range [][]string{{"strace", "-f", "-o", log}, {"perf", "trace", "-o", log}} {
		name := strings.Join(argv[:2], " ")
		if !have(argv[0]) {
			fmt.Printf("not measured: %s: it is not installed\n", name)
			continue
		}
		peers = append(peers, syscallPeer{name, argv})
	}
	return peers
}

// syscallRun prints what recording system calls does to a whole run.
func (b *bench) syscallRun(argv []string) error {
	data := filepath.Join(b.dir, "syscalls.data")
	clean := func() error {
		return errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old"), os.RemoveAll(filepath.Join(b.dir, "peer.log")))
	}
	var events int64
	vs := []*variant{{name: "untraced", job: job{argv: argv}}, {
		name: "fentry record --syscalls -F none",
		job:  job{argv: append([]string{b.fentry, "record", "-q", "-o", data, "--syscalls", "-F", "none"}, argv...)},
		after: func() (err error) {
			_, events, err = b.traceSize(data)
			return err
		},
		clean: clean,
	}}
	for _, p := range b.syscallPeers() {
		vs = append(vs, &variant{name: p.name, job: job{argv: append(p.argv, argv...)}, clean: clean})
	}
	if err := b.inTurn(vs, 1); err != nil {
		return err
	}
	base := figuresOf(vs[0])
	fmt.Printf("%s, a whole run with %d system calls recorded\n", filepath.Base(argv[0]), events/2)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "CPU s\t(min)\twall s\tCPU x\twall x\t\t")
	eachMeasured(vs, func(v *variant, f figures) {
		fmt.Fprintf(w, "%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t %s\t\n", f.cpu, f.leastCPU, f.wall, f.cpu/base.cpu, f.wall/base.wall, v.name)
	})
	return w.Flush()
}
