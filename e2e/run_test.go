package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A command is a process to run to its end.
type command struct {
	dir     string
	argv    []string
	argv0   string // what the program sees as argv[0], default argv[0]
	env     []string
	stdin   string
	timeout time.Duration // default hangs
}

// A result is everything a user could notice about a finished process.
type result struct {
	argv           []string
	stdout, stderr string
	status         string // "exit 3" or "signal killed"
	err            error  // could not be run, or ran out of time
	usage          *syscall.Rusage
}

// hangs is when a process is taken for one that does not end. It is far more than any needs on a machine that does a lot
// else, as nothing but a hang is to be found by it.
const hangs = 10 * time.Minute

func run(t testing.TB, c command) *result {
	t.Helper()
	timeout := c.timeout
	if timeout == 0 {
		timeout = hangs
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir = c.dir
	if c.argv0 != "" {
		cmd.Args[0] = c.argv0
	}
	cmd.Env = append(baseEnv(), c.env...)
	cmd.Stdin = strings.NewReader(c.stdin)
	var out, errb output
	cmd.Stdout, cmd.Stderr = &out, &errb
	// A process group of its own: children that hang die with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	r := &result{argv: c.argv, stdout: out.String(), stderr: errb.String()}
	if out.dropped+errb.dropped > 0 {
		r.err = fmt.Errorf("more than %d bytes of output: %d dropped", maxOutput, out.dropped+errb.dropped)
		r.status = "too much output"
		return r
	}
	if ctx.Err() != nil {
		r.err = fmt.Errorf("no end after %v", timeout)
		r.status = "timeout"
		return r
	}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		r.err = err
		r.status = "not run"
		return r
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	r.usage, _ = cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if ws.Signaled() {
		r.status = "signal " + ws.Signal().String()
	} else {
		r.status = fmt.Sprintf("exit %d", ws.ExitStatus())
	}
	return r
}

// An output keeps what a process writes, up to maxOutput; who writes more cannot write any more (EPIPE). Its buffer is not embedded:
// io.Copy would use ReadFrom, which has no bound.
type output struct {
	buf     bytes.Buffer
	dropped int
}

const maxOutput = 1 << 30 // of a replay there can be hundreds of megabytes

func (o *output) Write(b []byte) (int, error) {
	keep := min(len(b), maxOutput-o.buf.Len())
	o.dropped += len(b) - keep
	if _, err := o.buf.Write(b[:keep]); err != nil || keep == len(b) {
		return keep, err
	}
	return keep, io.ErrShortWrite
}

func (o *output) String() string { return o.buf.String() }

// baseEnv is the same small environment for every run, traced or not.
func baseEnv() []string {
	env := []string{"LC_ALL=C.UTF-8", "TZ=UTC", "XDG_CACHE_HOME=" + cache}
	for _, k := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(k); ok {
			env = append(env, k+"="+v)
		}
	}
	return env
}

func (r *result) mustSucceed(t testing.TB) *result {
	t.Helper()
	if r.err != nil || r.status != "exit 0" {
		t.Fatalf("%s: %s %v\n%s%s", strings.Join(r.argv, " "), r.status, r.err, clip(r.stdout), clip(r.stderr))
	}
	return r
}

// clip shortens output for a failure message.
func clip(s string) string {
	const most = 4000
	if len(s) > most {
		return s[:most/2] + fmt.Sprintf("\n[... %d bytes ...]\n", len(s)-most) + s[len(s)-most/2:]
	}
	return s
}

// sameBehaviour reports every difference between an untraced and a traced run.
func sameBehaviour(t testing.TB, want, got *result) {
	t.Helper()
	if got.err != nil {
		t.Errorf("traced: %v (untraced: %s)", got.err, want.status)
	}
	if want.status != got.status {
		t.Errorf("status: traced %s, untraced %s", got.status, want.status)
	}
	if want.stdout != got.stdout {
		t.Errorf("stdout differs\n--- untraced\n%s--- traced\n%s", clip(want.stdout), clip(got.stdout))
	}
	if a, b := want.stderr, withoutSummary(got.stderr); a != b {
		t.Errorf("stderr differs\n--- untraced\n%s--- traced\n%s", clip(a), clip(got.stderr))
	}
}

// withoutSummary removes fentry's own lines from what a traced program wrote to stderr.
func withoutSummary(stderr string) string {
	var keep []string
	for _, line := range strings.SplitAfter(stderr, "\n") {
		if !strings.HasPrefix(line, "[ fentry:") && !strings.HasPrefix(line, "fentry:") {
			keep = append(keep, line)
		}
	}
	return strings.Join(keep, "")
}
