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

// A repeated is a patched program that makes a call again and again, as often as its last arguments say.
type repeated struct {
	program string
	args    []string

	instructions float64 // for a call; NaN: they cannot be counted here
	ns           float64 // for a call, at least
}

// repeat measures programs in turn.
func (b *bench) repeat(all []*repeated) error {
	calls, data := "20000", filepath.Join(b.dir, "repeat.data")
	if b.quick {
		calls = "2000"
	}
	for _, r := range all {
		r.instructions, r.ns = math.NaN(), math.Inf(1)
		if !have("valgrind") {
			continue
		}
		var err error
		if r.instructions, err = b.perCall(counters[0], r.program, r.args...); err != nil {
			return err
		}
	}
	for round := range b.rounds {
		for _, r := range from(all, round) {
			s, err := b.run(job{argv: append(append([]string{r.program}, r.args...), calls, "15"), env: []string{"FENTRY_DATA=" + data}, out: true})
			if err := errors.Join(err, os.RemoveAll(data), os.RemoveAll(data+".old")); err != nil {
				return err
			}
			ns, err := strconv.ParseFloat(strings.TrimSpace(s.out), 64)
			if err != nil {
				return fmt.Errorf("%s: %q: %w", r.program, s.out, err)
			}
			r.ns = min(r.ns, ns)
		}
	}
	return nil
}

// patchedAs compiles an embedded program that calls a function, and patches it with options for that function.
func (b *bench) patchedAs(source, function string, options ...string) (string, error) {
	src, err := b.extract(source + ".c")
	if err != nil {
		return "", err
	}
	program := filepath.Join(b.dir, source)
	if err := b.tool("gcc", "-g", "-O2", "-static", "-o", program, src); err != nil {
		return "", err
	}
	traced := program + ".traced" + strings.Join(options, "")
	argv := append([]string{b.fentry, "patch", "-F", function, "-o", traced}, options...)
	return traced, b.tool(append(argv, program)...)
}

// counted is how many instructions there are, if they were counted.
func counted(n float64) string {
	if math.IsNaN(n) {
		return ""
	}
	return fmt.Sprintf("%.0f", n)
}

// wantedFrame is how many ns a frame of a stack may take whose row is known, and wantedCaptured how many six arguments and a
// result may add to a call.
const wantedFrame, wantedCaptured = 15, 10

// walk prints what a frame of a stack costs that is taken at each call of a function, below frames of as many functions. It
// is walked, numbered and written; what a stack costs whatever its depth is not in it.
func (b *bench) walk() error {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not measured: stacks are walked on x86-64")
		return nil
	}
	traced, err := b.patchedAs("walk", "leaf", "--stack", "leaf")
	if err != nil {
		return err
	}
	depths := []int{0, 20, 40}
	var all []*repeated
	for _, d := range depths {
		all = append(all, &repeated{program: traced, args: []string{strconv.Itoa(d)}})
	}
	if err := b.repeat(all); err != nil {
		return err
	}
	fmt.Println("A frame of a stack that is taken at a call")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ns\twanted\tinstructions\t\t")
	for i := 1; i < len(depths); i++ {
		frames := float64(depths[i] - depths[i-1])
		fmt.Fprintf(w, "%.1f\t<= %d\t%s\t %d to %d frames\t\n", (all[i].ns-all[i-1].ns)/frames, wantedFrame,
			counted((all[i].instructions-all[i-1].instructions)/frames), depths[i-1], depths[i])
	}
	fmt.Fprintf(w, "%.0f\t\t%s\t a stack of %d frames, with its call\t\n", all[1].ns, counted(all[1].instructions), depths[1])
	return w.Flush()
}

// args prints what capturing arguments and results adds to a traced call.
func (b *bench) args() error {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not measured: instructions and times are those of x86-64")
		return nil
	}
	all := []*repeated{{}, {}, {}}
	for i, options := range [][]string{nil, {"-A", "six"}, {"-A", "six", "-R", "six"}} {
		var err error
		if all[i].program, err = b.patchedAs("args", "six", options...); err != nil {
			return err
		}
	}
	if err := b.repeat(all); err != nil {
		return err
	}
	fmt.Println("What is captured of a call, more than the traced call takes")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ns\twanted\tinstructions\t\t")
	for i, name := range []string{"six arguments", "six arguments and a result"} {
		r := all[i+1]
		fmt.Fprintf(w, "%.1f\t<= %d\t%s\t %s\t\n", r.ns-all[0].ns, wantedCaptured, counted(r.instructions-all[0].instructions), name)
	}
	return w.Flush()
}
