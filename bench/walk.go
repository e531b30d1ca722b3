package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// wantedFrame is how many ns a frame of a stack may take whose row is known.
const wantedFrame = 15

// walk prints what a frame of a stack costs that is taken at each call of a function, below frames of as many functions. It
// is walked, numbered and written; what a stack costs whatever its depth is not in it.
func (b *bench) walk() error {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not measured: stacks are walked on x86-64")
		return nil
	}
	src, err := b.extract("walk.c")
	if err != nil {
		return err
	}
	program := filepath.Join(b.dir, "walk")
	if err := b.tool("gcc", "-O2", "-static", "-o", program, src); err != nil {
		return err
	}
	traced := program + ".traced"
	if err := b.tool(b.fentry, "patch", "-F", "leaf", "--stack", "leaf", "-o", traced, program); err != nil {
		return err
	}
	calls, data := "20000", filepath.Join(b.dir, "walk.data")
	if b.quick {
		calls = "2000"
	}
	depths := []int{0, 20, 40}
	instructions := make([]float64, len(depths))
	counts := have("valgrind")
	for i := 0; counts && i < len(depths); i++ {
		if instructions[i], err = b.perCall(counters[0], traced, strconv.Itoa(depths[i])); err != nil {
			return err
		}
	}
	least := slices.Repeat([]float64{math.Inf(1)}, len(depths))
	for round := range b.rounds {
		for i, d := range from(depths, round) {
			s, err := b.run(job{argv: []string{traced, strconv.Itoa(d), calls, "15"}, env: []string{"FENTRY_DATA=" + data}, out: true})
			if err := errors.Join(err, os.RemoveAll(data), os.RemoveAll(data+".old")); err != nil {
				return err
			}
			ns, err := strconv.ParseFloat(strings.TrimSpace(s.out), 64)
			if err != nil {
				return fmt.Errorf("walk: %q: %w", s.out, err)
			}
			least[i] = min(least[i], ns)
		}
	}
	fmt.Println("A frame of a stack that is taken at a call")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ns\twanted\tinstructions\t\t")
	for i := 1; i < len(depths); i++ {
		frames := float64(depths[i] - depths[i-1])
		counted := ""
		if counts {
			counted = fmt.Sprintf("%.0f", (instructions[i]-instructions[i-1])/frames)
		}
		fmt.Fprintf(w, "%.1f\t<= %d\t%s\t %d to %d frames\t\n", (least[i]-least[i-1])/frames, wantedFrame, counted, depths[i-1], depths[i])
	}
	fmt.Fprintf(w, "%.0f\t\t\t a stack of %d frames, with its call\t\n", least[1], depths[1])
	return w.Flush()
}
