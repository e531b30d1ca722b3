// Command 03-go-library uses fentry's packages directly: it prints how the
// functions of a program can be traced and writes a copy of the program that
// traces those that match a pattern.
//
//	go run ./examples/03-go-library PROGRAM 'parse_*' OUT
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: 03-go-library PROGRAM PATTERN OUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "03-go-library:", err)
		os.Exit(1)
	}
}

func run(program, pattern, out string) error {
	image, err := os.ReadFile(program)
	if err != nil {
		return err
	}

	// What is in the image?
	f, err := elfio.Parse(image)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	sites, err := record.Find(f, record.Options{})
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	kinds := map[record.Kind]int{}
	for i := range sites {
		if sites[i].Traceable() {
			kinds[sites[i].Kind]++
		}
	}
	for k := record.KindFentryCall; k <= record.KindPlain; k++ {
		if kinds[k] > 0 {
			fmt.Printf("%-14s %d\n", k, kinds[k])
		}
	}

	// What shall change? A plan is plain data: look at it, or print it with
	// WriteText, before it is applied.
	filter, err := record.NewFilter([]string{pattern}, nil)
	if err != nil {
		return err
	}
	plan, err := patch.New(f, sites, patch.Options{Tracer: patch.FunctionGraph, Select: filter, Path: program})
	if errors.Is(err, patch.ErrNoSites) {
		return fmt.Errorf("%s: nothing matches %q", program, pattern)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	for i := range plan.Functions {
		if fn := &plan.Functions[i]; fn.Action == patch.Trace {
			fmt.Printf("trace %s at %#x\n", fn.Display(), fn.Addr)
		}
	}

	// Apply it. All old bytes are compared before anything is changed.
	patched, err := plan.Image()
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return os.WriteFile(out, patched, 0o755)
}
