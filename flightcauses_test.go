//go:build linux

package fentry_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// Whatever asks for a dump gets one, with all calls until then, and it says what that was; and what is there at the end is
// kept, however the program ends: of programs that were started, and of those that were attached to.
func TestFlightCauses(t *testing.T) {
	const callsAsk = 1100 * time.Millisecond // they do once a second
	causes := []struct {
		cause string // as the dump says
		ask   func(c *controlled, dumps chan<- session.DumpRequest)
		asked time.Duration
	}{
		{cause: "fentry dump", ask: func(c *controlled, _ chan<- session.DumpRequest) { c.control("dump") }},
		{cause: "fentry dump", asked: time.Hour, ask: func(c *controlled, _ chan<- session.DumpRequest) { c.control("dump 1h") }},
		{cause: "an alarm", asked: time.Hour, ask: func(c *controlled, dumps chan<- session.DumpRequest) {
			ask(c.t, dumps, "an alarm", time.Hour)
		}},
		{cause: "SIGUSR2", ask: func(c *controlled, _ chan<- session.DumpRequest) {
			if err := syscall.Kill(os.Getpid(), syscall.SIGUSR2); err != nil {
				c.t.Error(err)
			}
		}},
		{cause: "a call of middle", ask: func(c *controlled, _ chan<- session.DumpRequest) {
			c.control("trigger = middle@snapshot:1")
			c.do("work 1")
		}},
		{cause: "a call of slow", ask: func(c *controlled, _ chan<- session.DumpRequest) {
			time.Sleep(callsAsk)
			c.control("trigger = slow@time>5ms,snapshot:1")
			c.do("slow")
		}},
	}
	for _, end := range []struct {
		say    string // to the program
		status syscall.WaitStatus
	}{
		{"", 7 << 8}, {"raise 11", syscall.WaitStatus(syscall.SIGSEGV)}, {"raise 9", syscall.WaitStatus(syscall.SIGKILL)},
	} {
		for name, attached := range map[string]bool{"started": false, "attached": true} {
			t.Run(fmt.Sprintf("%s %#x", name, int(end.status)), func(t *testing.T) {
				dumps := make(chan session.DumpRequest)
				o := fentry.Options{Buffer: 8 << 20, Policy: trace.PolicyOverwrite}
				const core = 0x80
				o.Flight = &session.Flight{Dumps: dumps, Keep: func(s syscall.WaitStatus) bool { return s&^core == end.status }}
				c := startControlled(t, attached, o, "-fpatchable-function-entry=5")
				calls := 0
				for i, cause := range causes {
					c.do("work 10")
					calls += 10
					cause.ask(c, dumps)
					dir := fmt.Sprintf("%s.%d", c.dir, i+1)
					waitFor(t, "dump for "+cause.cause, func() int {
						tr, err := trace.Open(dir)
						if err != nil {
							return 0
						}
						defer tr.Close()
						if tr.Ending != trace.EndWritten {
							return 0
						}
						return 1
					})
					if got := dumped(t, dir, cause.cause, cause.asked); got < calls || got > calls+1 {
						t.Errorf("%s: %d calls of outer, want %d", cause.cause, got, calls)
					}
					if cause.cause == "a call of middle" {
						calls++
					}
				}
				c.do("work 10")
				if calls += 10; end.say != "" {
					fmt.Fprintln(c.in, end.say)
				}
				c.in.Close()
				res := <-c.ended
				if res == nil || len(res.Dumps) != len(causes) || res.Unwanted || !res.Ended || res.Status&^core != end.status {
					t.Fatalf("%+v", res)
				}
				for i, d := range res.Dumps {
					if d.Cause != causes[i].cause || d.Err != nil || d.Events == 0 || d.Asked != causes[i].asked {
						t.Errorf("%+v, want one for %s", d, causes[i].cause)
					}
				}
				if got := dumped(t, c.dir, "", 0); got != calls {
					t.Errorf("%d calls of outer at the end, want %d", got, calls)
				}
			})
		}
	}
}

// dumped is how many calls of outer are in a dump, which says what asked for it; "": in what was written at the end.
func dumped(t *testing.T, dir, cause string, asked time.Duration) (calls int) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	d := tr.Info.Dump
	if len(tr.Problems) > 0 || tr.Info.Lost != 0 || (d != nil) != (cause != "") || d != nil && (d.Cause != cause || d.Asked != asked) {
		t.Errorf("%s: %v, %d lost, %+v, want %s, %v", dir, tr.Problems, tr.Info.Lost, d, cause, asked)
	}
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Entry && tr.Name(ev.Func) == "outer" {
			calls++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// TestFlightCount: the count of a trigger is one of dumps: calls that ask while none can be made use nothing of it up.
func TestFlightCount(t *testing.T) {
	for trigger, say := range map[string]string{"middle@snapshot:2": "work 1", "slow@time>5ms,snapshot:2": "slow"} {
		t.Run(trigger, func(t *testing.T) {
			o := fentry.Options{Buffer: 8 << 20, Policy: trace.PolicyOverwrite, Flight: &session.Flight{}}
			c := startControlled(t, false, o, "-fpatchable-function-entry=5")
			c.control("trigger = " + trigger)
			asked := 0
			for deadline := time.Now().Add(2 * time.Minute); ; asked++ {
				if _, err := os.Stat(c.dir + ".2"); err == nil {
					break
				} else if time.Now().After(deadline) {
					t.Fatalf("%d calls have asked, and there is no second dump", asked)
				}
				c.do("%s", say)
			}
			for range 3 {
				c.do("%s", say)
			}
			c.in.Close()
			if res := <-c.ended; res == nil || len(res.Dumps) != 2 || res.Dumps[0].Err != nil || res.Dumps[1].Err != nil {
				t.Errorf("%d calls have asked: %+v", asked, res)
			}
		})
	}
}
