package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/fentry-dev/fentry/e2e/corpus"
)

func rssOf(s sample) float64 { return float64(s.rss) }

// preparedLua returns Lua with sites of -mfentry, and the script that it runs.
func (b *bench) preparedLua() (program, script string, err error) {
	if script, err = b.extract("bench.lua"); err != nil {
		return "", "", err
	}
	built, err := corpus.Build(b.ctx, corpus.Lua, corpus.Flags{
		C: []string{"-O2", "-g", "-pg", "-mfentry"}, LD: []string{"-pg"},
	})
	if err != nil {
		return "", "", err
	}
	return built.Program, script, nil
}

// recordLua records the script with an argument and options, and returns the trace's directory.
func (b *bench) recordLua(size string, options ...string) (data string, err error) {
	program, lua, err := b.preparedLua()
	if err != nil {
		return "", err
	}
	data = filepath.Join(b.dir, "lua.data")
	if err := os.RemoveAll(data); err != nil {
		return "", err
	}
	argv := append([]string{b.fentry, "record", "-q", "-o", data}, options...)
	_, err = b.run(job{argv: append(argv, program, lua, size)})
	return data, err
}

// readers prints how fast programs read traces of Lua, recorded with these arguments of the script, and what memory that
// takes.
func (b *bench) readers(title string, sizes []string, of func(data, size string) ([]*variant, error)) error {
	fmt.Println(title)
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "M events\tM events/s\t(best)\tM/CPU s\tCPU s\twall s\tRSS MB\t\t")
	for _, size := range sizes {
		data, err := b.recordLua(size)
		if err != nil {
			return err
		}
		_, events, err := b.traceSize(data)
		if err != nil {
			return err
		}
		vs, err := of(data, size)
		if err != nil {
			return err
		}
		if err := b.inTurn(vs, 0); err != nil {
			return err
		}
		printReading(w, vs, events)
	}
	return errors.Join(w.Flush(), os.RemoveAll(filepath.Join(b.dir, "lua.data")))
}

// read prints how fast traces are read, and the memory it takes for a small and a large one.
func (b *bench) read() error {
	sizes := []string{"1", "12"}
	if b.quick {
		sizes[1] = "2"
	}
	return b.readers("Reading traces of Lua; wanted: report >= 20, replay >= 8 million events a second, "+
		"in memory that does not grow", sizes, func(data, size string) ([]*variant, error) {
		var vs []*variant
		for _, command := range []string{"report", "replay", "graph"} {
			vs = append(vs, &variant{name: "fentry " + command, job: job{argv: []string{b.fentry, command, "-i", data}}})
		}
		if !have("uftrace") {
			return vs, nil
		}
		peer := filepath.Join(b.dir, "read.uftrace")
		if err := os.RemoveAll(peer); err != nil {
			return nil, err
		}
		program, lua, err := b.preparedLua()
		if err != nil {
			return nil, err
		}
		argv := []string{"uftrace", "record", "--no-pager", "--no-libcall", "-d", peer, program, lua, size}
		if _, err := b.run(job{argv: argv}); err != nil {
			fmt.Println("not measured: uftrace:", firstLine(err))
			return vs, nil
		}
		for _, command := range []string{"report", "replay"} {
			argv := []string{"uftrace", command, "--no-pager", "-d", peer}
			vs = append(vs, &variant{name: "uftrace " + command, job: job{argv: argv}})
		}
		return vs, nil
	})
}

// printReading prints how fast a trace was read, a line each.
func printReading(w io.Writer, vs []*variant, events int64) {
	m := float64(events) / 1e6
	eachMeasured(vs, func(v *variant, f figures) {
		fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.0f\t %s\t\n",
			m, m/f.wall, m/f.leastWall, m/f.cpu, f.cpu, f.wall, f.rss/1e6, v.name)
	})
}

// parseCalls adds up the calls of fentry report --json; each is two events.
func parseCalls(out string) (int64, error) {
	var n int64
	d := json.NewDecoder(strings.NewReader(out))
	for {
		var row struct {
			Calls int64 `json:"calls"`
		}
		switch err := d.Decode(&row); {
		case errors.Is(err, io.EOF):
			return 2 * n, nil
		case err != nil:
			return 0, fmt.Errorf("report --json: %w", err)
		}
		n += row.Calls
	}
}
