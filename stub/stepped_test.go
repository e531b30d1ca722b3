package stub

import (
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSignalBetween: a signal handler that calls traced functions comes after every instruction of traced calls on
// amd64, alone and with others before and behind. Nothing is lost, nothing is recorded twice, and no slot of the trace
// is left unwritten: a recorder would wait for it.
func TestSignalBetween(t *testing.T) {
	for _, tr := range tracers {
		if tr.name == "count" {
			continue // it calls its slow path directly, and has no slots
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			f := buildFixture(t, "stepped.c", buildOptions{on: onAMD64, tracer: tr.name, config: tr.config})
			// Of calls and instructions. A fast path that reads the clock begins anew until it is left alone.
			args := []string{"1 31", "600 23"}
			if tr.name == "order" {
				args = append(args, "1 1", "1 2", "1 3", "1 5")
			}
			if testtool.Wide() {
				args = append(args, "1 53", "1 71", "3 97", "5000 61")
			}
			for _, args := range args {
				t.Run(args, func(t *testing.T) {
					out, ev := f.run(t, strings.Fields(args)...)
					expectCounts(t, out, ev)
					if ev.lost != 0 || tr.name != "func" && (ev.strays != 0 || ev.open != 0) {
						t.Errorf("%d lost, %d exits without entry, %d open", ev.lost, ev.strays, ev.open)
					}
					// A handler that goes on to another chunk between two instructions may leave one.
					if ev.holes != 0 && (tr.name != "order" || strings.HasPrefix(args, "1 ")) {
						t.Errorf("%d slots are reserved and not written", ev.holes)
					}
				})
			}
		})
	}
}
