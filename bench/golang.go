package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// What is wanted of programs of Go: of call and return against two reads of the time stamp counter in the same process, and
// of a request of an HTTP server against the untraced one, with all functions switched off, and with its own packages and
// net/http traced.
const (
	wantedGoCall    = 1.3
	wantedGoOff     = 1.05
	wantedGoRequest = 1.15
)

// A goRun is one way to run a program of Go.
type goRun struct {
	name   string
	argv   []string
	env    []string
	of     string // what is compared: a key of what the program prints
	with   string // with which one of the same run; "": with the same of the first row
	wanted float64
	median []map[string]float64

	find          func() (float64, error) // what is compared, if the program does not print it
	check         func(out string) error  // whether it has printed what it should; nil: it may be anything
	before, after func() error            // of each run
}

// golang prints what tracing costs programs of Go.
func (b *bench) golang() error {
	data := filepath.Join(b.dir, "go.data")
	call, err := b.buildGo("gocall")
	if err != nil {
		return err
	}
	server, err := b.buildGo("goserver")
	if err != nil {
		return err
	}
	if err := b.tool(b.fentry, "patch", "-F", "main.empty", "-o", call+".traced", call); err != nil {
		return err
	}
	if err := b.tool(b.fentry, "patch", "-o", server+".traced", server); err != nil {
		return err
	}
	measure, requests := []string{"15", "400000"}, "20000"
	if b.quick {
		measure, requests = []string{"3", "20000"}, "400"
	}
	off := &commander{path: filepath.Join(b.dir, "go.control"), text: "tracing_on = 0\nsettle\n"}
	record := func(more ...string) []string {
		return append([]string{b.fentry, "record", "-q", "--overhead", "no", "-o", data}, more...)
	}
	tables := []struct {
		head string
		runs []*goRun
	}{
		{"Call and return of an empty function of Go, in ns", []*goRun{
			{name: "untraced", argv: append([]string{call}, measure...), of: "call"},
			{name: "patched, FENTRY_OFF=1", argv: append([]string{call + ".traced"}, measure...), env: []string{"FENTRY_OFF=1"}, of: "call"},
			{name: "fentry record, of two timestamp reads", argv: record(append([]string{"-F", "main.empty", call}, measure...)...),
				of: "call", with: "rdtsc2", wanted: wantedGoCall},
			{name: "the same, the best rounds of both", argv: record(append([]string{"-F", "main.empty", call}, measure...)...),
				of: "call" + best, with: "rdtsc2" + best, wanted: wantedGoCall},
		}},
		{"A request of JSON over HTTP, in us of the server's processor time", []*goRun{
			{name: "untraced", argv: []string{server, requests}, of: "request"},
			{name: "patched, all functions, FENTRY_OFF=1", argv: []string{server + ".traced", requests}, env: []string{"FENTRY_OFF=1"},
				of: "request", wanted: wantedGoOff},
			{name: "fentry record, all functions, tracing_on = 0", argv: record("--control", "fifo:"+off.path, server, requests),
				of: "request", wanted: wantedGoOff, before: off.before, after: off.after},
			{name: "fentry record -F own", argv: record("-F", "own", server, requests), of: "request"},
			{name: "fentry record -F own -F net/http/...", argv: record("-F", "own", "-F", "net/http/...", server, requests), of: "request",
				wanted: wantedGoRequest},
			{name: "fentry record, all functions", argv: record(server, requests), of: "request"},
		}},
	}
	for _, t := range tables {
		if err := b.goTable(t.head, t.runs, data); err != nil {
			return err
		}
	}
	if err := b.goNoticed(data); err != nil {
		return err
	}
	if err := b.goLarge(data); err != nil {
		return err
	}
	return b.goPeers(call)
}

// A commander gives a recorder the same commands in each run, by a FIFO that is there as long as that.
type commander struct {
	path, text string
	fifo       *os.File
}

func (c *commander) before() error {
	if err := unix.Mkfifo(c.path, 0o600); err != nil {
		return fmt.Errorf("mkfifo %s: %w", c.path, err)
	}
	var err error
	if c.fifo, err = os.OpenFile(c.path, os.O_RDWR, 0); err == nil {
		_, err = c.fifo.WriteString(c.text)
	}
	return err
}

func (c *commander) after() error { return errors.Join(c.fifo.Close(), os.Remove(c.path)) }

func (b *bench) goTable(head string, runs []*goRun, data string) error {
	if err := b.goMeasure(runs, data); err != nil {
		return err
	}
	return goPrint(head, runs)
}

// goMeasure runs all in turn, as often as there are rounds.
func (b *bench) goMeasure(runs []*goRun, data string) error {
	for round := range b.rounds {
		for _, r := range from(runs, round) {
			s, err := b.goRun(r)
			if err := errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old")); err != nil {
				return err
			}
			if err == nil && r.check != nil {
				err = r.check(s.out)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			m, err := r.read(s.out)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			r.median = append(r.median, m)
		}
	}
	return nil
}

func goPrint(head string, runs []*goRun) error {
	fmt.Println(head)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\t(min)\tratio\twanted\t\t")
	for _, r := range runs {
		value, least := middleOf(r.median, r.of)
		to, _ := middleOf(runs[0].median, r.of)
		if r.with != "" {
			to, _ = middleOf(r.median, r.with)
		}
		wanted := ""
		if r.wanted > 0 {
			wanted = fmt.Sprintf("<= %.2f", r.wanted)
		}
		fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%s\t %s\t\n", value, least, value/to, wanted, r.name)
	}
	return w.Flush()
}

func (b *bench) goRun(r *goRun) (s sample, err error) {
	if r.before != nil {
		err = r.before()
	}
	if err == nil {
		s, err = b.run(job{argv: r.argv, env: r.env, out: true})
	}
	if r.after != nil {
		err = errors.Join(err, r.after())
	}
	return s, err
}

// read returns what a run has printed, or of what is found elsewhere, that.
func (r *goRun) read(out string) (map[string]float64, error) {
	if r.find == nil {
		return parseGo(out, r.of)
	}
	v, err := r.find()
	return map[string]float64{r.of: v}, err
}

// buildGo builds a program from its embedded sources.
func (b *bench) buildGo(name string) (string, error) {
	dir := filepath.Join(b.dir, name+".src")
	sources, err := fs.Sub(testdata, "testdata/"+name)
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, sources); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module "+name+"\n\ngo 1.26\n"), 0o666); err != nil {
		return "", err
	}
	out := filepath.Join(b.dir, name)
	return out, b.tool("env", "CGO_ENABLED=0", "go", "build", "-C", dir, "-o", out)
}

// best is behind the name of a measurement for the least of its rounds.
const best = ", best round"

// parseGo reads what the programs print: the name of each measurement, its median and, where there are rounds, the least.
func parseGo(out, key string) (map[string]float64, error) {
	m := map[string]float64{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			continue // what others print
		}
		m[f[0]] = v
		if least, err := strconv.ParseFloat(f[2], 64); err == nil {
			m[f[0]+best] = least
		}
	}
	if m[key] <= 0 {
		return nil, fmt.Errorf("no measurement of %s in %q", key, tail(out))
	}
	return m, nil
}
