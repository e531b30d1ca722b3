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

// read prints how fast traces are read, and the memory it takes for a small and a large one.
func (b *bench) read() error {
	program, lua, err := b.preparedLua()
	if err != nil {
		return err
	}
	small, large := "1", "12"
	if b.quick {
		large = "2"
	}
	fmt.Println("Reading traces of Lua; wanted: report >= 20, replay >= 8 million events a second, " +
		"in memory that does not grow")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "M events\tM events/s\t(best)\tCPU s\twall s\tRSS MB\t\t")
	for _, size := range []string{small, large} {
		data, peer := filepath.Join(b.dir, "read.data"), filepath.Join(b.dir, "read.uftrace")
		if err := errors.Join(os.RemoveAll(data), os.RemoveAll(peer)); err != nil {
			return err
		}
		if _, err := b.run(job{argv: []string{b.fentry, "record", "-q", "-o", data, program, lua, size}}); err != nil {
			return err
		}
		_, events, err := b.traceSize(data)
		if err != nil {
			return err
		}
		vs := []*variant{
			{name: "fentry report", job: job{argv: []string{b.fentry, "report", "-i", data}}},
			{name: "fentry replay", job: job{argv: []string{b.fentry, "replay", "-i", data}}},
			{name: "fentry graph", job: job{argv: []string{b.fentry, "graph", "-i", data}}},
		}
		if have("uftrace") {
			argv := []string{"uftrace", "record", "--no-pager", "--no-libcall", "-d", peer, program, lua, size}
			if _, err := b.run(job{argv: argv}); err != nil {
				fmt.Println("not measured: uftrace:", firstLine(err))
			} else {
				vs = append(vs,
					&variant{name: "uftrace report", job: job{argv: []string{"uftrace", "report", "--no-pager", "-d", peer}}},
					&variant{name: "uftrace replay", job: job{argv: []string{"uftrace", "replay", "--no-pager", "-d", peer}}})
			}
		}
		if err := b.inTurn(vs, 0); err != nil {
			return err
		}
		printReading(w, vs, events)
	}
	return w.Flush()
}

// printReading prints how fast a trace was read, a line each.
func printReading(w io.Writer, vs []*variant, events int64) {
	for _, v := range vs {
		if len(v.samples) == 0 {
			continue
		}
		wall, least := middle(v.samples, wallOf)
		cpu, _ := middle(v.samples, cpuOf)
		rss, _ := middle(v.samples, rssOf)
		m := float64(events) / 1e6
		fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t%.2f\t%.2f\t%.0f\t %s\t\n", m, m/wall, m/least, cpu, wall, rss/1e6, v.name)
	}
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
