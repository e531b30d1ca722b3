package main

import (
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

//go:embed testdata
var testdata embed.FS

// extract writes an embedded source into the scratch directory.
func (b *bench) extract(name string) (string, error) {
	src, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(b.dir, name)
	return path, os.WriteFile(path, src, 0o644)
}

// A callRun is one way to run the empty function.
type callRun struct {
	name   string
	argv   []string
	env    []string
	limit  float64 // what the ratio may be; 0: no target
	cycles float64 // what it may take above the untraced call, in cycles; 0: no target
	reads  int     // timestamp reads it is compared with
	role   int     // in the comparison of tracers
	dearer int     // how many times dearer than the reference it shall be; 0: no target
	median []map[string]float64
	failed error
}

// Roles of runs in the comparison of tracers.
const (
	notCompared = iota
	untraced    // what is taken off for the net cost
	reference   // what the others are compared with
	compared
)

// wantedOfUftrace is how many times dearer than the reference uftrace shall be.
const wantedOfUftrace = 4

// call prints the cost of call and return of an empty function.
func (b *bench) call() error {
	data := filepath.Join(b.dir, "call.data")
	runs, err := b.callRuns(data)
	if err != nil {
		return err
	}
	for round := range b.rounds {
		for i, r := range from(runs, round) {
			if r.failed != nil {
				continue
			}
			s, err := b.run(job{argv: r.argv, env: r.env, out: true})
			if err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old")); err != nil {
				return err
			}
			var m map[string]float64
			if err == nil {
				m, err = parseCall(s.out)
			}
			if err != nil && i == 0 || b.ctx.Err() != nil {
				return err
			}
			if err != nil {
				r.failed = err
				fmt.Println("not measured:", r.name+":", firstLine(err))
				continue
			}
			r.median = append(r.median, m)
		}
	}
	printCalls(runs)
	printPeers(runs)
	return nil
}

// callRuns builds the program and returns the ways to run it, the untraced one first; traces go to data.
func (b *bench) callRuns(data string) ([]*callRun, error) {
	src, err := b.extract("call.c")
	if err != nil {
		return nil, err
	}
	build := func(name, cc string, flags ...string) (string, error) {
		out := filepath.Join(b.dir, name)
		return out, b.tool(append([]string{cc, "-O2", "-o", out, src}, flags...)...)
	}
	rounds, calls := "15", "400000"
	if b.quick {
		rounds, calls = "3", "20000"
	}
	var runs []*callRun
	add := func(name string, limit float64, reads int, env []string, argv ...string) *callRun {
		r := &callRun{name: name, argv: append(argv, rounds, calls), env: env, limit: limit, reads: reads}
		runs = append(runs, r)
		return r
	}
	plain, err := build("plain", "gcc")
	if err != nil {
		return nil, err
	}
	add("plain", 0, 2, nil, plain).role = untraced
	sites, err := build("sites", "gcc", "-fpatchable-function-entry=5")
	if err != nil {
		return nil, err
	}
	add("sites, never patched", 0, 2, nil, sites)
	if err := b.tool(b.fentry, "patch", "-o", sites+".traced", sites); err != nil {
		return nil, err
	}
	add("patched, FENTRY_OFF=1", 0, 2, []string{"FENTRY_OFF=1"}, sites+".traced")
	add("fentry record (function_graph)", 1.35, 2, nil, b.fentry, "record", "-q", "-o", data, sites).role = reference
	add("fentry patch, run alone", 0, 2, []string{"FENTRY_DATA=" + data}, sites+".traced").role = compared
	add("fentry record -T function", 1.5, 1, nil, b.fentry, "record", "-q", "-T", "function", "-o", data, sites)
	add("fentry record -T profile", 1.35, 2, nil,
		b.fentry, "record", "-q", "-T", "profile", "-o", data, sites).role = compared
	add("fentry record --clock none", 0, 2, nil, b.fentry, "record", "-q", "--clock", "none", "-o", data, sites).cycles = 16
	add("fentry record -T count", 0, 2, nil, b.fentry, "record", "-q", "-T", "count", "-o", data, sites).cycles = 8
	add("fentry record, plain entry", 1.35, 2, nil,
		b.fentry, "record", "-q", "--overhead", "no", "-o", data, plain).role = compared
	add("fentry record, switched off meanwhile", 0, 2, nil, b.fentry, "record", "-q", "--overhead", "1", "-o", data, plain)
	mfentry, err := build("mfentry", "gcc", "-pg", "-mfentry")
	if err != nil {
		return nil, err
	}
	add("fentry record, -pg -mfentry", 1.35, 2, nil, b.fentry, "record", "-q", "-o", data, mfentry).role = compared
	mcount, err := build("mcount", "gcc", "-pg")
	if err != nil {
		return nil, err
	}
	add("fentry record, -pg (mcount)", 1.35, 2, nil, b.fentry, "record", "-q", "-o", data, mcount).role = compared
	add("gprof (-pg as it is)", 0, 2, nil, mcount).role = compared
	hooks, err := build("hooks", "gcc", "-finstrument-functions", "-DHOOKS")
	if err != nil {
		return nil, err
	}
	add("-finstrument-functions, empty hooks", 0, 2, nil, hooks).role = compared
	if have("uftrace") {
		for _, u := range []struct {
			name string
			argv []string
		}{
			{"uftrace record -P ., the same program", []string{"-P", ".", sites}},
			{"uftrace record, -pg -mfentry", []string{mfentry}},
		} {
			uftrace := []string{"uftrace", "record", "--no-pager", "--no-event", "--no-libcall", "-d", data}
			r := add(u.name, 0, 2, nil, append(uftrace, u.argv...)...)
			r.role, r.dearer = compared, wantedOfUftrace
		}
	}
	if have("clang") {
		xray, err := build("xray", "clang", "-fxray-instrument", "-fxray-instruction-threshold=1", "-DXRAY_FDR")
		if err != nil {
			fmt.Println("not measured: XRay, its runtime does not link:", firstLine(err))
		} else {
			add("XRay FDR", 0, 2, nil, xray).role = compared
		}
	}
	return runs, nil
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// parseCall reads what testdata/call.c prints: the median of each measurement.
func parseCall(out string) (map[string]float64, error) {
	m := map[string]float64{}
	for _, line := range strings.Split(out, "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		med, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		m[f[0]] = med
	}
	if m["call"] == 0 || m["rdtsc2"] == 0 || m["rdtsc"] == 0 || m["cycle"] == 0 {
		return nil, fmt.Errorf("no measurements in %q", tail(out))
	}
	return m, nil
}

func printCalls(runs []*callRun) {
	fmt.Println("Call and return of an empty function; timestamp reads and cycles measured in the same process")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ns\t(min)\t1 rdtsc\t2 rdtsc\tratio\tcycles above\twanted\t\t")
	var plain []map[string]float64
	for _, r := range runs {
		if r.role == untraced {
			plain = r.median
		}
	}
	for _, r := range runs {
		if len(r.median) == 0 {
			continue
		}
		call, least := middleOf(r.median, "call")
		one, _ := middleOf(r.median, "rdtsc")
		two, _ := middleOf(r.median, "rdtsc2")
		base := two
		if r.reads == 1 {
			base = one
		}
		wanted := ""
		if r.limit != 0 {
			wanted = fmt.Sprintf("<= %.2f of %d rdtsc", r.limit, r.reads)
		}
		if r.cycles != 0 {
			wanted = fmt.Sprintf("<= %.0f cycles", r.cycles)
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f\t%s\t %s\t\n",
			call, least, one, two, call/base, cyclesAbove(plain, r.median), wanted, r.name)
	}
	w.Flush()
}

// printPeers compares tracers with each other: the whole call, and the net cost,
// which is the call less that of an untraced function in the same round.
func printPeers(runs []*callRun) {
	var base, ref *callRun
	for _, r := range runs {
		switch {
		case len(r.median) == 0:
		case r.role == untraced:
			base = r
		case r.role == reference:
			ref = r
		}
	}
	if base == nil || ref == nil {
		return
	}
	fmt.Printf("\nThe same call, against %s; net: less the call of an untraced function\n", ref.name)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ns\ttimes\tnet ns\ttimes, net\twanted\t\t")
	for _, r := range runs {
		// A run that failed in some round has fewer: the rounds are not the same then.
		if len(r.median) != len(base.median) || len(r.median) != len(ref.median) ||
			r.role != reference && r.role != compared {
			continue
		}
		c := compareCalls(base.median, ref.median, r.median)
		wanted := ""
		if r.dearer > 0 {
			wanted = fmt.Sprintf(">= %d", r.dearer)
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%.2f\t%s\t %s\t\n", c.whole, c.times, c.net, c.netTimes, wanted, r.name)
	}
	w.Flush()
	two, _ := middleOf(ref.median, "rdtsc2")
	whole, _ := middleOf(ref.median, "call")
	fmt.Printf("Two timestamp reads alone are %.0f %% of the reference's call: "+
		"a tracer that reads the clock at entry and exit cannot be cheaper.\n", 100*two/whole)
}

// cyclesAbove is what a call takes above the untraced one, in cycles of the processor's clock; the rounds are
// compared one by one, as far as both have them.
func cyclesAbove(plain, run []map[string]float64) float64 {
	var above []float64
	for i := range min(len(plain), len(run)) {
		above = append(above, run[i]["call"]/run[i]["cycle"]-plain[i]["call"]/plain[i]["cycle"])
	}
	if len(above) == 0 {
		return 0
	}
	return median(above)
}

// A comparison is medians over rounds: of a call, of its net cost, and of the
// ratios of both to the reference's in the same round.
type comparison struct {
	whole, times, net, netTimes float64
}

func compareCalls(base, ref, run []map[string]float64) comparison {
	var whole, times, net, netTimes []float64
	for i := range run {
		call, plain, other := run[i]["call"], base[i]["call"], ref[i]["call"]
		whole = append(whole, call)
		times = append(times, call/other)
		net = append(net, call-plain)
		netTimes = append(netTimes, (call-plain)/(other-plain))
	}
	return comparison{median(whole), median(times), median(net), median(netTimes)}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func middleOf(rounds []map[string]float64, key string) (med, least float64) {
	var v []float64
	for _, m := range rounds {
		v = append(v, m[key])
	}
	slices.Sort(v)
	return v[len(v)/2], v[0]
}
