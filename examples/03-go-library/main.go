// Command 03-go-library uses fentry as a library: it prints how the functions of a
// program can be traced and writes a copy of the program that traces those that
// match a pattern.
//
//	go run ./examples/03-go-library PROGRAM 'parse_*' OUT
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/fentry-dev/fentry"
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

func run(path, pattern, out string) error {
	p, err := fentry.Open(path)
	if err != nil {
		return err
	}
	defer p.Close()
	kinds := map[record.Kind]int{}
	for i := range p.Sites {
		if p.Sites[i].Traceable() {
			kinds[p.Sites[i].Kind]++
		}
	}
	for k := record.KindFentryCall; k <= record.KindLibCall; k++ {
		if kinds[k] > 0 {
			fmt.Printf("%-14s %d\n", k, kinds[k])
		}
	}

	filter, err := record.NewFilter([]string{pattern}, nil)
	if err != nil {
		return err
	}
	plan, err := p.Plan(patch.Options{Select: filter})
	if errors.Is(err, patch.ErrNoSites) {
		return fmt.Errorf("%s: nothing matches %q", path, pattern)
	}
	if err != nil {
		return err
	}
	for i := range plan.Functions {
		if fn := &plan.Functions[i]; fn.Action == patch.Trace {
			fmt.Printf("trace %s at %#x\n", fn.Display(), fn.Addr)
		}
	}
	patched, err := plan.Image()
	if err != nil {
		return err
	}
	return os.WriteFile(out, patched, 0o755)
}
