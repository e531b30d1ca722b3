package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// What a run of an installed program may take, as a multiple of the untraced one: with all functions recorded, and as
// record does it by default.
const (
	wantedAll     = 3.5
	wantedDefault = 2.0
)

// installed prints what recording does to programs that no compiler has prepared, with all of their functions and with
// the bound that record sets by default.
func (b *bench) installed() error {
	python, err := b.extract("bench.py")
	if err != nil {
		return err
	}
	perl, err := b.extract("bench.pl")
	if err != nil {
		return err
	}
	size := "10"
	if b.quick {
		size = "1"
	}
	for _, argv := range [][]string{{"/usr/bin/python3", python, size}, {"/usr/bin/perl", perl, size}} {
		if _, err := os.Stat(argv[0]); err != nil {
			fmt.Println("not measured:", err)
			continue
		}
		if err := b.installedProgram(argv); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) installedProgram(argv []string) error {
	data := filepath.Join(b.dir, "installed.data")
	clean := func() error { return errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old")) }
	var vs []*variant
	events := map[string]int64{}
	add := func(name string, options ...string) {
		v := &variant{name: name, job: job{argv: argv}, clean: clean}
		if options != nil {
			v.job.argv = append(append([]string{b.fentry, "record", "-q", "-o", data}, options...), argv...)
			v.after = func() (err error) {
				_, events[name], err = b.traceSize(data)
				return err
			}
		}
		vs = append(vs, v)
	}
	add("untraced")
	add("fentry record", "--plain=auto")
	add("fentry record --overhead no", "--overhead", "no")
	if err := b.inTurn(vs, 0); err != nil {
		return err
	}
	base, _ := middle(vs[0].samples, wallOf)
	fmt.Printf("%s as it is installed; wall time, with fentry's own start and end\n", argv[0])
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "wall s\t(min)\tx\twanted\tevents\t\t")
	for i, v := range vs {
		if len(v.samples) == 0 {
			continue
		}
		wall, least := middle(v.samples, wallOf)
		wanted := []string{"", fmt.Sprintf("<= %.1f", wantedDefault), fmt.Sprintf("<= %.1f", wantedAll)}[i]
		fmt.Fprintf(w, "%.3f\t%.3f\t%.2f\t%s\t%d\t %s\t\n", wall, least, wall/base, wanted, events[v.name], v.name)
	}
	return w.Flush()
}
