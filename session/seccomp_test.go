//go:build linux

package session

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/trace"
)

// A systemCall is one that the runtime makes, by the name it has in stub/src.
type systemCall struct {
	name   string
	number string
}

// runtimeCalls are those that the runtime's sources name.
func runtimeCalls(t *testing.T) []systemCall {
	t.Helper()
	const src = "../stub/src"
	b, err := os.ReadFile(filepath.Join(src, runtime.GOARCH, "machine.h"))
	if err != nil {
		t.Fatal(err)
	}
	var calls []systemCall
	for _, m := range regexp.MustCompile(`SYS_(\w+) = (\d+)`).FindAllStringSubmatch(string(b), -1) {
		calls = append(calls, systemCall{m[1], m[2]})
	}
	if len(calls) < 30 {
		t.Fatalf("%d system calls in machine.h", len(calls))
	}
	return calls
}

// documentedCalls are those that the README says a program must allow itself.
func documentedCalls(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)must allow those that the tracer needs now and then:\s+(.*?)\.`).FindSubmatch(b)
	if m == nil {
		t.Fatal("the README does not say which system calls a program must allow")
	}
	return regexp.MustCompile(`\w+`).FindAllString(string(m[1]), -1)
}

// killed is what statusOf returns for a command that was ended by a signal.
const killed = 128

// statusOf is how a command ended: its exit status, or killed.
func statusOf(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return killed
}

// statusOf is how the program ended.
func (x *ran) statusOf() int {
	if x.res.Status.Signaled() {
		return killed
	}
	return x.code
}

// A program that refuses itself a system call that the runtime uses goes on, and every
// call that it makes is in the trace, or counted, or the trace says that nobody counted.
// So it is if the call was refused before the program began. And a filter that ends the
// process does that for no call but those that the README names.
func TestRefusedSystemCalls(t *testing.T) {
	plain, patched := countingProgram(t)
	documented := documentedCalls(t)
	for _, c := range runtimeCalls(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			args := []string{"calls", "200000", filepath.Join(t.TempDir(), "when")}
			refused := append(slices.Clone(args), c.number, "refuse")
			t.Run("later", func(t *testing.T) { refusedSystemCall(t, plain, patched, refused) })
			t.Run("from the start", func(t *testing.T) {
				refusedSystemCall(t, plain, plain, append([]string{"exec", c.number, patched}, args...))
			})
			t.Run("alone", func(t *testing.T) { refusedAlone(t, plain, patched, refused) })
			t.Run("deadly", func(t *testing.T) {
				deadly := append(slices.Clone(args), c.number, "kill")
				untraced := statusOf(t, exec.Command(plain, deadly...))
				r := recorderCmd{Buffer: 1 << 20}
				if x := r.run(t, append([]string{patched}, deadly...)...); x.statusOf() != untraced && !slices.Contains(documented, c.name) {
					t.Errorf("status %d traced, %d untraced; the README does not name %s", x.code, untraced, c.name)
				}
			})
		})
	}
	for _, name := range documented {
		if name != "and" && !slices.ContainsFunc(runtimeCalls(t), func(c systemCall) bool { return c.name == name }) && !slices.Contains(notCalls, name) {
			t.Errorf("the README names %s, which the runtime does not use", name)
		}
	}
}

// notCalls are words between the names of system calls.
var notCalls = strings.Fields("and at a thread s first call")

// made reads how many events a program has made, of what it has printed.
func made(t *testing.T, out string) uint64 {
	t.Helper()
	lines := strings.Fields(out)
	n, err := strconv.ParseUint(lines[len(lines)-1], 10, 64)
	if err != nil {
		t.Fatalf("output %q", out)
	}
	return 2 * n
}

// refusedSystemCall records a program, if it runs untraced.
func refusedSystemCall(t *testing.T, plain, program string, args []string) {
	t.Helper()
	untraced := slices.Clone(args)
	if i := slices.Index(untraced, "exec"); i == 0 {
		untraced[2] = plain
	}
	status := statusOf(t, exec.Command(plain, untraced...))
	r := recorderCmd{Buffer: 1 << 20}
	cmd := r.command(t, append([]string{program}, args...)...)
	cmd.Dir = t.TempDir()
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x := r.finish(t, cmd, &out, &errb)
	if x.statusOf() != status {
		t.Fatalf("status %d traced, %d untraced: %s", x.code, status, x.stderr)
	}
	if status != 0 {
		return // the program's own affair
	}
	if _, err := os.Stat(filepath.Join(cmd.Dir, DefaultDir)); err == nil {
		return // it has not found the recorder, and has made a trace of its own
	}
	if want := made(t, x.stdout); x.res.Events+x.res.Lost != want && !x.res.Uncounted {
		t.Errorf("%d events, %d lost, %d were made: %s", x.res.Events, x.res.Lost, want, x.stderr)
	}
}

// refusedAlone lets a program trace itself.
func refusedAlone(t *testing.T, plain, program string, args []string) {
	t.Helper()
	status := statusOf(t, exec.Command(plain, args...))
	cmd := exec.Command(program, args...)
	cmd.Dir = t.TempDir()
	var out bytes.Buffer
	cmd.Stdout = &out
	if have := statusOf(t, cmd); have != status {
		t.Fatalf("status %d traced, %d untraced", have, status)
	}
	if status != 0 {
		return
	}
	tr, err := trace.Open(filepath.Join(cmd.Dir, DefaultDir))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	events := uint64(0)
	err = tr.Walk(trace.WalkOptions{}, func(ev *trace.Event) error {
		if ev.Kind == trace.Entry || ev.Kind == trace.Exit {
			events++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l := tr.Losses()
	if want := made(t, out.String()); events+l.Events != want && l.Uncounted == nil {
		t.Errorf("%d events, %d lost, %d were made", events, l.Events, want)
	}
}
