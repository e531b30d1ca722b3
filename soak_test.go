//go:build linux

package fentry_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/trace"
)

// TestSoakGo records Go programs for as long as is asked for, each time in another way. Every run is checked as those of
// TestGo are: what is printed, and the number of calls of each function.
func TestSoakGo(t *testing.T) {
	limit := testtool.Soak(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("Go programs are traced on x86-64")
	}
	dir := t.TempDir()
	var progs []string
	args := map[string][]string{}
	for i, b := range goBuilds {
		if b.wide {
			continue
		}
		prog := b.build(t, filepath.Join(dir, fmt.Sprint(i)))
		progs = append(progs, prog)
		if b.prog == "gostress" && len(b.needs) == 0 {
			args[prog] = []string{"rounds", "200"} // so that most of the time is the program's
		}
	}
	one := func(of ...string) string { return of[rand.IntN(len(of))] }
	runs, calls := 0, uint64(0)
	for end := time.Now().Add(limit); time.Now().Before(end) && !t.Failed(); runs++ {
		var debug []string
		for _, d := range []string{
			"clobberfree=1", "gccheckmark=1", "gcstoptheworld=1", "adaptivestackstart=1", "gcshrinkstackoff=1", "asyncpreemptoff=1",
		} {
			if rand.IntN(4) == 0 {
				debug = append(debug, d)
			}
		}
		env := "GOMAXPROCS=" + one("1", "2", "3", "4", "8", "16") + " GOGC=" + one("off", "1", "5", "100") +
			" GODEBUG=" + strings.Join(debug, ",")
		prog := one(progs...)
		compareArgs(t, prog, args[prog], fentry.Options{}, env)
		tr, err := trace.Open(filepath.Join(filepath.Dir(prog), "trace"))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := tr.Report(trace.ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			calls += uint64(r.Calls)
		}
		tr.Close()
		if runs%20 == 19 {
			t.Logf("%d runs, %d calls so far", runs+1, calls)
		}
		if t.Failed() {
			t.Log(prog, env)
		}
	}
	t.Logf("%d runs, %d calls", runs, calls)
}
