//go:build linux

package session

import (
	"testing"
	"time"

	"github.com/fentry-dev/fentry/trace"
)

// TestOverhead: what tracing has cost is estimated by the events that were made, kept or not; those without a time cost
// less than those with one, whatever reading the clock costs here.
func TestOverhead(t *testing.T) {
	const events = 3_000_000
	of := func(clock string) time.Duration {
		s := &session{res: Result{Events: events / 3, Lost: events / 3, Overwrote: events / 3}}
		s.res.Images = []trace.Image{{}, {Clock: clock}}
		return s.overhead()
	}
	without, timed := of(trace.ClockNone), of("")
	if want := events * numbered * time.Nanosecond; without != want {
		t.Errorf("without a clock: %v, want %v", without, want)
	}
	if least := events * besides * time.Nanosecond; timed <= least {
		t.Errorf("with a clock: %v, want more than %v", timed, least)
	}
	emulated := &session{o: Options{Emulator: []string{"qemu"}}, res: Result{Events: events}}
	if d := emulated.overhead(); d != 0 {
		t.Errorf("under an emulator: %v, want nothing", d)
	}
}
