//go:build linux

package session

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/trace"
)

// counted is a run of the program testdata/losses.c, which counts its calls.
type counted struct {
	ran
	made uint64   // events: an entry and an exit a call
	when []uint64 // counter at every 1024th call
	r    *recorderCmd
}

// lockedBuffer is what a running program has written so far.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wait waits until something is the case.
func wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 2 minutes", what)
		}
	}
}

// countingProgram returns the program, as it was compiled and patched.
func countingProgram(t *testing.T) (plain, patched string) {
	t.Helper()
	plain = fixture.CC(t, "testdata/losses", "-fpatchable-function-entry=5")
	patched = filepath.Join(t.TempDir(), "losses")
	fixture.Patched(t, plain, patched)
	return plain, patched
}

// runCounted runs it; each is called once it runs, with the recorder's process.
func runCounted(t *testing.T, r *recorderCmd, each func(recorder *os.Process, stderr *lockedBuffer), args ...string) *counted {
	t.Helper()
	_, path := countingProgram(t)
	when := filepath.Join(t.TempDir(), "when")
	cmd := r.command(t, append(append([]string{path}, args...), when)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs lockedBuffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	br := ready(t, out)
	if each != nil {
		each(cmd.Process, &errs)
	}
	c := &counted{r: r}
	if _, err := fmt.Fscan(br, &c.made); err != nil {
		t.Errorf("the program does not say how many calls it has made: %v", err)
	}
	c.made *= 2
	c.ran = r.finish(t, cmd, new(bytes.Buffer), &errs.b)
	if c.code != 0 {
		t.Fatalf("status %d: %s", c.code, c.stderr)
	}
	b, err := os.ReadFile(when)
	if err != nil {
		t.Fatal(err)
	}
	for ; len(b) > 0; b = b[8:] {
		c.when = append(c.when, le.Uint64(b))
	}
	return c
}

// exact checks that all that was made was kept, or is counted.
func (c *counted) exact(t *testing.T) {
	t.Helper()
	kept := c.res.Events
	if sum := kept + c.res.Lost + c.res.Overwrote; sum != c.made || c.res.Uncounted {
		t.Errorf("%d kept, %d lost, %d overwritten, together %d of %d; uncounted: %t", kept, c.res.Lost, c.res.Overwrote,
			sum, c.made, c.res.Uncounted)
	}
	if tr := c.open(t); tr.Lost != c.res.Lost || tr.Header.Overwritten != c.res.Overwrote || tr.Header.Uncounted != 0 {
		t.Errorf("the trace says %d lost, header %+v; the session %+v", tr.Lost, tr.Header, c.res)
	}
}

func (c *counted) open(t *testing.T) *trace.Trace {
	t.Helper()
	tr, err := trace.Open(c.r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// A recorder that is stopped for longer than a program waits for it loses events, which
// are counted. Once it goes on, so does the trace.
func TestStoppedRecorder(t *testing.T) {
	for _, policy := range []trace.Policy{trace.PolicyBlock, trace.PolicyDrop, trace.PolicyOverwrite} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			t.Parallel()
			r := &recorderCmd{Buffer: 1 << 20, Policy: policy}
			end := filepath.Join(t.TempDir(), "end")
			size := func() int64 {
				fi, err := os.Stat(filepath.Join(r.Dir, trace.EventsFile))
				if err != nil {
					t.Error(err)
					return 1 << 62
				}
				return fi.Size()
			}
			c := runCounted(t, r, func(p *os.Process, errs *lockedBuffer) {
				if policy != trace.PolicyOverwrite {
					wait(t, "the trace begins", func() bool { return size() > 4<<20 })
				}
				program := children(t, p.Pid)
				_ = p.Signal(syscall.SIGSTOP)
				if policy == trace.PolicyBlock {
					wait(t, "the program goes on alone", func() bool { return strings.Contains(errs.String(), "does not answer") })
				}
				// As long as it takes to fill the buffer many times.
				used := processorTime(t, program)
				wait(t, "the program has run", func() bool { return processorTime(t, program) > used+300*time.Millisecond })
				stopped := size()
				_ = p.Signal(syscall.SIGCONT)
				if policy != trace.PolicyOverwrite {
					wait(t, "the trace goes on", func() bool { return size() > stopped+4<<20 })
				}
				if err := os.WriteFile(end, nil, 0o666); err != nil {
					t.Error(err)
				}
			}, "until", end)
			c.exact(t)
			if c.res.Lost+c.res.Overwrote == 0 {
				t.Errorf("nothing was lost: %+v", c.res)
			}
		})
	}
}

// processorTime is how much of it processes have used, to a tick of the clock.
func processorTime(t *testing.T, pids []int) (used time.Duration) {
	t.Helper()
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // from the third field on
		for _, ticks := range f[11:13] {
			n, err := strconv.Atoi(ticks)
			if err != nil {
				t.Fatal(err)
			}
			used += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return used
}

// When the recorder cannot write any more, programs go on without being traced. What they
// did before is in the trace or counted; the trace says from when to when nobody counted.
func TestUncounted(t *testing.T) {
	check := func(t *testing.T, r *recorderCmd, want string) {
		c := runCounted(t, r, nil, "calls", "3000000")
		if strings.Count(c.stderr, "\n") != 1 || !strings.Contains(c.stderr, want) {
			t.Errorf("messages: %s", c.stderr)
		}
		known := c.res.Events + c.res.Lost
		if known > c.made || c.res.Events == 0 || c.res.Lost == 0 || !c.res.Uncounted {
			t.Fatalf("%d kept or counted of %d: %+v", known, c.made, c.res)
		}
		h := c.open(t).Header
		// The first call that is not known of is the one behind all that are.
		first := min(known/2/1024, uint64(len(c.when)-1))
		if h.Uncounted == 0 || h.UncountedFrom == 0 || first+1 < uint64(len(c.when)) && h.UncountedFrom > c.when[first+1] || h.UncountedTo < c.when[len(c.when)-1] {
			t.Errorf("%d to %d; the first call that is not known was made at about %d, the last at %d",
				h.UncountedFrom, h.UncountedTo, c.when[first], c.when[len(c.when)-1])
		}
	}
	t.Run("limit", func(t *testing.T) {
		r := &recorderCmd{Buffer: 1 << 20, prefix: []string{"sh", "-c", "ulimit -f 5000; exec \"$@\"", "sh"}}
		check(t, r, "file too large")
	})
	t.Run("full", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Skipf("needs to mount a small file system (root): %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		r := &recorderCmd{Buffer: 1 << 20, Dir: filepath.Join(dir, "data")}
		check(t, r, "no space left")
	})
}

// Where address space is limited, the recorder makes do with a smaller buffer, and the
// program with the part of it that it can map; nothing is lost.
func TestLimitedAddressSpace(t *testing.T) {
	r := &recorderCmd{Buffer: 8 << 30, prefix: []string{"sh", "-c", "ulimit -v 4000000; exec \"$@\"", "sh"}}
	c := runCounted(t, r, nil, "calls", "3000000")
	c.exact(t)
	if c.res.Lost != 0 || !strings.Contains(c.stderr, "by ulimit -v: the buffer has") {
		t.Errorf("%d lost: %s", c.res.Lost, c.stderr)
	}
	// The program alone: there is no room for more of the buffer than a few chunks.
	_, prog := countingProgram(t)
	r = &recorderCmd{}
	script := "ulimit -v 16000; exec " + prog + " calls 3000000 " + filepath.Join(t.TempDir(), "when")
	x := r.run(t, "sh", "-c", script)
	if x.code != 0 {
		t.Fatalf("status %d: %s", x.code, x.stderr)
	}
	if want := made(t, x.stdout); x.res.Events+x.res.Lost != want || x.res.Uncounted {
		t.Errorf("%d events, %d lost, %d were made; uncounted: %t", x.res.Events, x.res.Lost, want, x.res.Uncounted)
	}
}
