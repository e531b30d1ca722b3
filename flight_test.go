//go:build linux

package fentry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// flightProgram has three threads that always do the same, and a fourth that sleeps in a call, until its input ends.
// Then it ends as its argument says. It says when all have done something.
const flightProgram = `
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile int over;
__attribute__((noinline)) void leaf(void) { __asm__ volatile(""); }
__attribute__((noinline)) void inner(void) { leaf(); leaf(); __asm__ volatile(""); }
__attribute__((noinline)) void step(void) { inner(); leaf(); __asm__ volatile(""); }
__attribute__((noinline)) void doze(void) { while (!over) usleep(1000); }

static volatile long done[3];
static void *work(void *arg) { while (!over) { step(); ++*(volatile long *)arg; } return arg; }
static void *idle(void *arg) { doze(); return arg; }

int main(int argc, char **argv)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], 0, i < 3 ? work : idle, i < 3 ? (void *)&done[i] : 0);
	while (done[0] < 10000 || done[1] < 10000 || done[2] < 10000)
		usleep(1000);
	printf("%d\n", getpid());
	fflush(stdout);
	prctl(PR_SET_NAME, "ready");
	while (getchar() != EOF)
		;
	over = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	if (argc > 1 && atoi(argv[1]) < 0)
		raise(-atoi(argv[1]));
	return argc > 1 ? atoi(argv[1]) : 0;
}
`

// ask asks for a dump and returns it.
func ask(t *testing.T, dumps chan<- session.DumpRequest, cause string, last time.Duration) session.Dump {
	t.Helper()
	done := make(chan session.Dump, 1)
	dumps <- session.DumpRequest{Cause: cause, Last: last, Done: done}
	select {
	case d := <-done:
		if d.Err != nil {
			t.Fatal(d.Err)
		}
		return d
	case <-time.After(time.Minute):
		t.Fatal("no dump")
	}
	panic("not reached")
}

// checkWhole checks that the threads of a dump, from their first event on, did what the program does, without a gap.
func checkWhole(t *testing.T, dir string) (steps int) {
	t.Helper()
	return checkFrom(t, dir, "")
}

// checkFrom does so from the first call of a function on, if there is one.
func checkFrom(t *testing.T, dir, first string) (steps int) {
	t.Helper()
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if len(tr.Problems) > 0 || tr.Unknown > 0 || tr.Info == nil || uint64(tr.Chunks) != tr.Info.Totals.Chunks {
		t.Errorf("%s: %v, %d chunks unknown, %d in all, info %+v", dir, tr.Problems, tr.Unknown, tr.Chunks, tr.Info)
	}
	const period = "step inner leaf /leaf leaf /leaf /inner leaf /leaf /step"
	var did strings.Builder
	for _, k := range tr.Tasks {
		did.Reset()
		err := tr.Walk(trace.WalkOptions{Tasks: []*trace.Task{k}}, func(ev *trace.Event) error {
			name := tr.Name(ev.Func)
			if ev.Kind != trace.Entry && ev.Kind != trace.Exit || !strings.Contains(period, name) {
				if ev.Kind == trace.Unwound {
					t.Errorf("%s: %v of %s", dir, ev.Kind, name)
				}
				return nil
			}
			if ev.Kind == trace.Exit {
				did.WriteByte('/')
			}
			did.WriteString(name + " ")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(did.String())
		if i := slices.Index(words, first); first != "" && i >= 0 {
			words = words[i:]
		} else if first != "" {
			words = nil
		}
		if k.Gaps > 1 || len(words) == 0 { // a gap in front of the oldest that there was
			if k.Gaps > 1 {
				t.Errorf("%s: thread %d has %d gaps", dir, k.TID, k.Gaps)
			}
			continue
		}
		at, all := 0, strings.Fields(period)
		switch i := slices.Index(words, "step"); {
		case i >= 0:
			at = (len(all) - i%len(all)) % len(all)
		default: // less than a period
			for at < len(all)-1 && !slices.Equal(slices.Concat(all, all)[at:at+min(len(words), len(all))], words) {
				at++
			}
		}
		for i, w := range words {
			if w != all[(at+i)%len(all)] {
				t.Errorf("%s: thread %d: %s, want %s, at %d of %d", dir, k.TID, w, all[(at+i)%len(all)], i, len(words))
				break
			}
			if w == "/step" {
				steps++
			}
		}
	}
	return steps
}

// TestFlightLast: a dump of some time has what was recorded in it.
func TestFlightLast(t *testing.T) {
	program := testtool.Compile(t, "paced", `
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void step(void) { __asm__ volatile(""); }
int main(void)
{
	char c;
	for (int i = 0; i < 20000; i++) {
		step();
		usleep(50);
	}
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < 20; i++)
		step();
	return read(0, &c, 1) < 0;
}
`, "-O2", "-fpatchable-function-entry=5")
	dumps := make(chan session.DumpRequest)
	o := options(t)
	o.Policy, o.Buffer, o.Flight = trace.PolicyOverwrite, 16<<20, &session.Flight{Dumps: dumps}
	in, w := io.Pipe()
	ready, stdout := io.Pipe()
	cmd := exec.Command(program)
	cmd.Stdin, cmd.Stdout = in, stdout
	ended := make(chan error, 1)
	go func() {
		_, err := fentry.Run(context.Background(), cmd, o)
		stdout.Close()
		ended <- err
	}()
	if _, err := fmt.Fscanln(ready, new(string)); err != nil {
		t.Fatal(err)
	}
	const asked = 1800 * time.Millisecond // several chunks
	d := ask(t, dumps, "test", asked)
	w.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	tr, err := trace.Open(d.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	if err := tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		first, last = min(first, ev.Time), max(last, ev.Time)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if span := time.Duration(last - first); span < asked/2 { // some time has passed until it was asked for
		t.Errorf("%d events of %v, %v asked", d.Events, span, asked)
	}
}

// TestFlight: dumps of a program that goes on are whole, as far as they say, and it is kept at the end what was asked
// for.
func TestFlight(t *testing.T) {
	program := testtool.Compile(t, "flight", flightProgram, "-O2", "-pthread", "-fpatchable-function-entry=5")
	for _, tt := range []struct {
		name, argument string
		keep           bool
	}{
		{"ends well", "0", false}, {"fails", "3", true}, {"is killed", "-9", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dumps := make(chan session.DumpRequest)
			o := options(t)
			o.Policy, o.Buffer = trace.PolicyOverwrite, 16<<20
			o.Flight = &session.Flight{Dumps: dumps, Keep: func(s syscall.WaitStatus) bool { return s != 0 }}
			in, w := io.Pipe()
			ready, stdout := io.Pipe()
			cmd := exec.Command(program, tt.argument)
			cmd.Stdin, cmd.Stdout = in, stdout
			type result struct {
				res *fentry.Result
				err error
			}
			ended := make(chan result, 1)
			go func() {
				res, err := fentry.Run(context.Background(), cmd, o)
				ended <- result{res, err}
				stdout.Close()
			}()
			t.Cleanup(func() { w.Close() })
			var pid int
			if _, err := fmt.Fscanln(ready, &pid); err != nil {
				t.Fatal(err)
			}
			for i, last := range []time.Duration{0, time.Microsecond, 0} {
				d := ask(t, dumps, "test", last)
				if want := o.Dir + "." + string(rune('1'+i)); d.Dir != want || d.Events == 0 || d.Asked != last {
					t.Errorf("%+v, want %s", d, want)
				}
				steps := checkWhole(t, d.Dir)
				if last == 0 && steps == 0 {
					t.Errorf("%s: %d calls of step", d.Dir, steps)
				}
			}
			dir, err := session.Control(pid, "dump 1h")
			if want := o.Dir + ".4"; err != nil || dir != want {
				t.Errorf("%s, %v, want %s", dir, err, want)
			} else if steps := checkWhole(t, dir); steps == 0 {
				t.Errorf("%s: %d calls of step", dir, steps)
			}
			var wrong *session.ControlError
			if _, err := session.Control(pid, "dump soon"); !errors.As(err, &wrong) || wrong.Column != 6 {
				t.Errorf("error %v", err)
			}
			w.Close()
			r := <-ended
			if r.res == nil || len(r.res.Dumps) != 4 || r.res.Unwanted == tt.keep || r.res.WriteError != nil {
				t.Fatalf("%+v, %v", r.res, r.err)
			}
			old, err := trace.Open(o.Dir)
			if (err == nil) != tt.keep {
				t.Fatalf("%s: %v", o.Dir, err)
			}
			if tt.keep {
				old.Close()
				checkWhole(t, o.Dir)
			}
		})
	}
}
