package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// wantedOff is how many ns more a call of a plain entry that is switched off may take than one of a compiled site, for
// one function that is called again and again.
const wantedOff = 0.5

// off prints what a function costs that is patched and switched off, by how many functions there are: the predictor and
// the caches pay for more jumps. What has been off for a while, because a filter has been changed, has its own
// instructions again.
func (b *bench) off() error {
	src, err := b.extract("off.c")
	if err != nil {
		return err
	}
	calls := "1000000"
	if b.quick {
		calls = "10000"
	}
	build := func(name string, flags ...string) (string, error) {
		out := filepath.Join(b.dir, name)
		if err := b.tool(append([]string{"gcc", "-O2", "-o", out, src}, flags...)...); err != nil {
			return "", err
		}
		return out, b.tool(b.fentry, "patch", "-o", out+".off", out)
	}
	plain, err := build("off-plain")
	if err != nil {
		return err
	}
	sites, err := build("off-sites", "-DSITES", "-fpatchable-function-entry=5")
	if err != nil {
		return err
	}
	type row struct {
		name, program string
		n             int
		settled       bool // recorded, and a filter has all functions off
		calls         []map[string]float64
	}
	data := filepath.Join(b.dir, "off.data")
	var rows []*row
	numbers := []int{1, 100, 4000, 50000}
	for _, n := range numbers {
		for _, r := range []row{
			{name: "no site", program: plain}, {name: "compiled site, never patched", program: sites},
			{name: "compiled site, off", program: sites + ".off"}, {name: "plain entry, off", program: plain + ".off"},
			{name: "compiled site, off for a while", program: sites, settled: true},
			{name: "plain entry, off for a while", program: plain, settled: true},
		} {
			r.n = n
			rows = append(rows, &r)
		}
	}
	for round := range b.rounds {
		for _, r := range from(rows, round) {
			j := job{argv: []string{r.program, calls, strconv.Itoa(r.n)}, env: []string{"FENTRY_OFF=1"}, out: true}
			if r.settled {
				j.argv = append([]string{b.fentry, "record", "-q", "--no-inherit", "-o", data}, j.argv...)
				j.env = []string{fmt.Sprintf("OFF_FIRST=%[1]s control $PPID 'set_ftrace_filter = f49999' >&2 && "+
					"%[1]s control $PPID settle >&2", b.fentry)}
			}
			s, err := b.run(j)
			if err != nil {
				return err
			}
			if err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old")); err != nil {
				return err
			}
			m, err := parseOff(s.out)
			if err != nil {
				return err
			}
			r.calls = append(r.calls, m)
		}
	}
	fmt.Println("A call of a function that is switched off; functions are called in random order")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "functions\tns\t(min)\tmore\tof a compiled site\twanted\t\t")
	for i, r := range rows {
		const variants, compiled = 6, 2
		call, least := middleOf(r.calls, "call")
		first, _ := middleOf(rows[i-i%variants].calls, "call")
		site, _ := middleOf(rows[i-i%variants+compiled].calls, "call")
		wanted := ""
		if r.n == 1 && i%variants == compiled+1 {
			wanted = fmt.Sprintf("<= %.1f", wantedOff)
		}
		fmt.Fprintf(w, "%d\t%.2f\t%.2f\t%+.2f\t%+.2f\t%s\t %s\t\n", r.n, call, least, call-first, call-site, wanted, r.name)
	}
	return w.Flush()
}

// parseOff reads what testdata/off.c prints.
func parseOff(out string) (map[string]float64, error) {
	f := strings.Fields(out)
	if len(f) != 3 || f[0] != "call" {
		return nil, fmt.Errorf("no measurement in %q", tail(out))
	}
	v, err := strconv.ParseFloat(f[1], 64)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", tail(out), err)
	}
	return map[string]float64{"call": v}, nil
}
