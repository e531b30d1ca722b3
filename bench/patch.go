package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// patchRounds is how often patching is measured at least: it takes little time, of which much is the kernel's.
const patchRounds = 9

// patch prints what patching a large executable costs, against copying it.
func (b *bench) patch() error {
	rounds := b.rounds
	defer func() { b.rounds = rounds }()
	functions, few := 200_000, 25_000
	if b.quick {
		functions, few = 2_000, 250
	} else {
		b.rounds = max(rounds, patchRounds)
	}
	fmt.Println("Patching executables, against copying them; wanted: 100 MB in less than 3 x the time of cp")
	many, err := b.large("many", functions, 0)
	if err != nil {
		return err
	}
	if err := b.patchOf(many, fmt.Sprintf("%d functions, nothing but code", functions), "f1000"); err != nil {
		return err
	}
	debug, err := b.large("debug", few, few*3600)
	if err != nil {
		return err
	}
	if err := b.patchOf(debug, fmt.Sprintf("%d functions, mostly debug information", few), "f100"); err != nil {
		return err
	}
	program := os.Getenv("FENTRY_BENCH_PROGRAM")
	if program == "" {
		fmt.Println("not measured: a program of yours; FENTRY_BENCH_PROGRAM names one that was compiled for tracing, " +
			"such as gdb with -pg -mfentry")
		return nil
	}
	return b.patchOf(program, filepath.Base(program), "main")
}

// large builds an executable of so many functions, and so many bytes that are not loaded.
func (b *bench) large(name string, functions, unloaded int) (string, error) {
	src, err := b.extract("large.s")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(src)
	if err != nil {
		return "", err
	}
	s := strings.Replace(string(text), ".rept\t200000", fmt.Sprintf(".rept\t%d", functions), 1)
	if unloaded > 0 {
		s += fmt.Sprintf("\t.section .debug_info,\"\",@progbits\n\t.fill %d, 8, 0x0123456789abcdef\n", unloaded/8)
	}
	if err := os.WriteFile(src, []byte(s), 0o644); err != nil {
		return "", err
	}
	out := filepath.Join(b.dir, name)
	return out, b.tool("gcc", "-no-pie", "-o", out, src)
}

// patchOf measures one executable; one is the name of a function of it.
func (b *bench) patchOf(program, what, one string) error {
	st, err := os.Stat(program)
	if err != nil {
		return err
	}
	out := filepath.Join(b.dir, "patched")
	clean := func() error { return os.RemoveAll(out) }
	vs := []*variant{
		{name: "cp", job: job{argv: []string{"cp", "--reflink=never", program, out}}, clean: clean},
		{name: "fentry patch, all functions", clean: clean,
			job: job{argv: []string{b.fentry, "patch", "-q", "-o", out, program}}},
		{name: "fentry patch -F " + one, clean: clean,
			job: job{argv: []string{b.fentry, "patch", "-q", "-F", one, "-o", out, program}}},
		{name: "fentry list", job: job{argv: []string{b.fentry, "list", "-q", program}}},
	}
	if err := b.inTurn(vs, 1); err != nil {
		return err
	}
	fmt.Printf("%.0f MB, %s\n", float64(st.Size())/1e6, what)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "wall s\t(min)\tCPU s\twall x\tCPU x\tRSS MB\t\t")
	eachMeasured(vs, func(v *variant, f figures) {
		fmt.Fprintf(w, "%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t%.0f\t %s\t\n", f.wall, f.leastWall, f.cpu,
			timesOf(v.samples, vs[0].samples, wallOf), timesOf(v.samples, vs[0].samples, cpuOf), f.rss/1e6, v.name)
	})
	return w.Flush()
}

// timesOf is the median of the ratios of two quantities that were measured in the same round.
func timesOf(samples, base []sample, of func(sample) float64) float64 {
	r := make([]float64, 0, len(samples))
	for i := range min(len(samples), len(base)) {
		if d := of(base[i]); d > 0 {
			r = append(r, of(samples[i])/d)
		}
	}
	if len(r) == 0 {
		return 0
	}
	slices.Sort(r)
	return r[len(r)/2]
}
