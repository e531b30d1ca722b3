package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/fentry-dev/fentry/e2e/corpus"
)

// programs prints what tracing all functions does to whole runs of real programs.
func (b *bench) programs() error {
	lua, err := b.extract("bench.lua")
	if err != nil {
		return err
	}
	n, size := 12_000, "6"
	if b.quick {
		n, size = 500, "1"
	}
	sql := filepath.Join(b.dir, "bench.sql")
	script := strings.Replace(corpus.SQLScript(n), "SELECT no_such_column FROM item;\n", "", 1)
	if err := os.WriteFile(sql, []byte(script), 0o644); err != nil {
		return err
	}
	for _, p := range []struct {
		name  corpus.Name
		args  []string
		stdin string
	}{{corpus.Lua, []string{lua, size}, ""}, {corpus.SQLite, []string{":memory:"}, sql}} {
		if err := b.program(p.name, p.args, p.stdin); err != nil {
			return err
		}
	}
	return nil
}

// info is what fentry info --json says that a table needs.
type info struct {
	Events int64 `json:"events"`
	Lost   int64 `json:"lost"`
}

func (b *bench) program(name corpus.Name, args []string, stdin string) error {
	build := func(c, ld []string) (string, error) {
		built, err := corpus.Build(b.ctx, name, corpus.Flags{
			C: append([]string{"-O2", "-g"}, c...), LD: append([]string{}, ld...),
		})
		return built.Program, err
	}
	plain, err := build(nil, nil)
	if err != nil {
		return err
	}
	sites, err := build([]string{"-fpatchable-function-entry=5"}, nil)
	if err != nil {
		return err
	}
	mfentry, err := build([]string{"-pg", "-mfentry"}, []string{"-pg"})
	if err != nil {
		return err
	}
	off := filepath.Join(b.dir, string(name)+".off")
	if err := b.tool(b.fentry, "patch", "-o", off, sites); err != nil {
		return err
	}
	data := filepath.Join(b.dir, "program.data")
	clean := func() error { return errors.Join(os.RemoveAll(data), os.RemoveAll(data+".old")) }
	var bytes, events int64
	var vs []*variant
	add := func(label string, env []string, after func() error, argv ...string) {
		vs = append(vs, &variant{
			name: label, job: job{argv: append(argv, args...), env: env, stdin: stdin}, after: after, clean: clean,
		})
	}
	add("native, no sites", nil, nil, plain)
	add("sites, never patched", nil, nil, sites)
	add("patched, FENTRY_OFF=1", []string{"FENTRY_OFF=1"}, nil, off)
	add("fentry record to disk", nil, func() error {
		var err error
		bytes, events, err = b.traceSize(data)
		return err
	}, b.fentry, "record", "-q", "-o", data, sites)
	add("fentry record, -pg -mfentry", nil, nil, b.fentry, "record", "-q", "-o", data, mfentry)
	add("fentry patch, run alone", []string{"FENTRY_DATA=" + data}, nil, off)
	add("fentry record -T function", nil, nil, b.fentry, "record", "-q", "-T", "function", "-o", data, sites)
	add("fentry record -T profile", nil, nil, b.fentry, "record", "-q", "-T", "profile", "-o", data, sites)
	add("fentry record --args=auto", nil, nil, b.fentry, "record", "-q", "--overhead", "no", "--args=auto", "-o", data, sites)
	if have("uftrace") {
		add("uftrace record -a, -pg -mfentry", nil, nil, "uftrace", "record", "--no-pager", "-a", "-d", data, mfentry)
		add("uftrace record, -pg -mfentry", nil, nil, "uftrace", "record", "--no-pager", "-d", data, mfentry)
		add("uftrace record -P ., patchable", nil, nil, "uftrace", "record", "--no-pager", "-P", ".", "-d", data, sites)
	}
	if err := clean(); err != nil {
		return err
	}
	if err := b.inTurn(vs, 0); err != nil {
		return err
	}
	base := figuresOf(vs[0])
	fmt.Printf("%s, a whole run with all functions traced: %d calls, %.2f bytes an event on disk\n",
		name, events/2, float64(bytes)/float64(max(events, 1)))
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "CPU s\t(min)\twall s\tCPU x\twall x\t\t")
	eachMeasured(vs, func(v *variant, f figures) {
		fmt.Fprintf(w, "%.3f\t%.3f\t%.3f\t%.2f\t%.2f\t %s\t\n", f.cpu, f.leastCPU, f.wall, f.cpu/base.cpu, f.wall/base.wall, v.name)
	})
	return w.Flush()
}

// traceSize is a trace's size on disk and its number of events.
func (b *bench) traceSize(data string) (bytes, events int64, err error) {
	if bytes, err = dirSize(data); err != nil {
		return 0, 0, err
	}
	s, err := b.run(job{argv: []string{b.fentry, "info", "--json", "-i", data}, out: true})
	if err != nil {
		return 0, 0, err
	}
	var in info
	if err := json.Unmarshal([]byte(s.out), &in); err != nil {
		return 0, 0, err
	}
	if in.Lost != 0 {
		return 0, 0, fmt.Errorf("%d events lost", in.Lost)
	}
	if in.Events == 0 {
		if in.Events, err = b.countEvents(data); err != nil {
			return 0, 0, err
		}
	}
	return bytes, in.Events, nil
}

// countEvents adds up the calls of a report: two events each.
func (b *bench) countEvents(data string) (int64, error) {
	s, err := b.run(job{argv: []string{b.fentry, "report", "--json", "-i", data}, out: true})
	if err != nil {
		return 0, err
	}
	return parseCalls(s.out)
}
