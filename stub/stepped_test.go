package stub

import (
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSignalBetween: a signal handler that calls traced functions comes after every instruction of traced calls on
// amd64, alone and with others before and behind. Nothing is lost, nothing is recorded twice, and no slot of the trace
// is left unwritten: a recorder would wait for it.
func TestSignalBetween(t *testing.T) {
	args := func(n uint8) Action { return Action{Kind: ActArgs, Plain: n} }
	result := func(n uint8) Action { return Action{Kind: ActResult, Plain: n} }
	captures := map[string][]Action{
		"inner": {args(2), result(format.PlainFloat)}, "even": {args(1)}, "odd": {args(3), result(format.PlainGeneral)},
		"leaf": {result(format.PlainGeneral)}, "jump": {args(6), result(format.PlainGeneral)}, "mid": {args(4), result(format.PlainFloat)},
		"top": {args(5)},
	}
	all := slices.Clone(tracers)
	capturing := tracers[0]
	capturing.name = "capturing"
	for _, tr := range append(all, capturing) {
		if tr.name == "count" {
			continue // it calls its slow path directly, and has no slots
		}
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			o := buildOptions{on: onAMD64, tracer: tr.name, config: tr.config}
			if tr.name == capturing.name {
				o.tracer, o.acts = "graph", captures
			}
			f := buildFixture(t, "stepped.c", o)
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
					records := 0
					for name, of := range o.acts {
						for _, a := range of {
							if a.Kind == ActArgs {
								records += ev.calls[name]
							} else if name != "jump" && name != "odd" { // these end by jumps, odd but for the last
								records += ev.exits[name]
							}
						}
					}
					if n := ev.codes[format.RecArgs]; o.acts != nil && n < records {
						t.Errorf("%d records of what is captured, want %d", n, records)
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
