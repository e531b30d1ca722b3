//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A flight recorder of a process that runs already makes dumps of it, and keeps what there is at the end if it ends so,
// though it is not the recorder's to wait for.
func TestFlightAttached(t *testing.T) {
	source := filepath.Join(t.TempDir(), "flight.c")
	if err := os.WriteFile(source, []byte(flightProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	program := buildFile(t, source, "-fpatchable-function-entry=5")
	for argument, status := range map[string]int{"0": 0, "3": 3, "-9": -1, "-11": -1} {
		t.Run(argument, func(t *testing.T) {
			r := start(t, program, argument)
			pid := r.cmd.Process.Pid
			o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Logf: t.Logf, Policy: trace.PolicyOverwrite,
				Buffer: 16 << 20, Overhead: -1}
			o.Flight = &session.Flight{Keep: func(s syscall.WaitStatus) bool { return s != 0 }}
			type result struct {
				res *fentry.Result
				err error
			}
			ended := make(chan result, 1)
			go func() {
				res, err := fentry.Attach(context.Background(), []int{pid}, o)
				ended <- result{res, err}
			}()
			// A call of step is recorded as soon as one is made.
			steps := 0
			for deadline := time.Now().Add(time.Minute); steps == 0; time.Sleep(10 * time.Millisecond) {
				dir, err := session.Control(pid, "dump")
				if err == nil {
					steps = checkFrom(t, dir, "step") // calls that were open when it was attached to have no beginning
				} else if !errors.Is(err, session.ErrNotRecorded) {
					t.Fatal(err)
				}
				if time.Now().After(deadline) {
					t.Fatalf("no call of step is in any dump: %v", err)
				}
				if len(ended) > 0 {
					got := <-ended
					if got.err != nil && strings.Contains(got.err.Error(), "not permitted") {
						t.Skip(got.err)
					}
					t.Fatalf("%+v", got)
				}
			}
			r.in.Close()
			got := <-ended
			r.end(t, status, fmt.Sprintf("%d\n", pid))
			if got.err != nil || !got.res.Ended || got.res.Status != r.cmd.ProcessState.Sys() || got.res.Unwanted != (status == 0) {
				t.Errorf("%+v, %v", got.res, got.err)
			}
			tr, err := trace.Open(o.Dir)
			if (err == nil) != (status != 0) {
				t.Fatalf("%s: %v", o.Dir, err)
			}
			if err == nil {
				tr.Close()
				checkFrom(t, o.Dir, "step")
			}
		})
	}
}

// Arguments and results are captured of a process that runs already.
func TestAttachArguments(t *testing.T) {
	r := start(t, buildAttached(t, "-g"), "one")
	specs := []arguments.Spec{{Pattern: "_Z3suml"}}
	o := fentry.Options{Dir: filepath.Join(t.TempDir(), "fentry.data"), Arguments: specs, Results: specs}
	deadline := time.Now().Add(time.Minute)
	for long := 20 * time.Millisecond; ; long *= 2 {
		attach(t, r.cmd.Process.Pid, o, long)
		calls, results := checkSums(t, o.Dir)
		if calls > 0 && results > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d calls, %d results in %v", calls, results, long)
		}
	}
	r.end(t, 7, "right\n")
}

// checkSums checks the arguments and results of sum in a trace, and says of how many calls they are there.
func checkSums(t *testing.T, dir string) (calls, results int) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	open := map[int]uint64{} // arguments by depth
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		switch {
		case tr.Name(ev.Func) != "_Z3suml":
		case ev.Kind == trace.Entry && ev.Args != nil:
			open[ev.Depth] = ev.Args.Words[0]
			calls++
		case ev.Kind == trace.Exit && ev.Result != nil:
			n, ok := open[ev.Depth]
			if delete(open, ev.Depth); ok && ev.Result.Words[0] != n*(n+1)/2 {
				return fmt.Errorf("sum(%d) = %d", n, ev.Result.Words[0])
			}
			results++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return calls, results
}
