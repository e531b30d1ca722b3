//go:build linux

package session

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/trace"
)

// perChunk is how many events a full chunk holds.
const perChunk = (format.ChunkSize - format.ChunkHeader) / 8

// Every event of many threads arrives, in order within each of them, through a
// pool that is much smaller than the trace.
func TestDrainThreads(t *testing.T) {
	r := recorderCmd{Buffer: 1 << 20}
	const threads, chunks = 8, 100
	x := r.run(t, fixture.CC(t, "testdata/pool"), "threads", fmt.Sprint(threads), fmt.Sprint(chunks))
	if x.code != 0 || x.stderr != "" {
		t.Fatalf("status %d: %s", x.code, x.stderr)
	}
	want := uint64(threads * chunks * perChunk)
	if x.res.Events != want || eventsIn(x.chunks) != int(want) || x.res.Lost != 0 || x.res.Tasks != threads || x.res.Processes != 1 {
		t.Errorf("%+v, %d events in the file, want %d", x.res, eventsIn(x.chunks), want)
	}
	last := make(map[uint32]uint32)
	for _, c := range x.chunks {
		if n, ok := last[c.tid]; ok && c.number != n+1 {
			t.Errorf("thread %d: chunk %d after %d", c.tid, c.number, n)
		}
		last[c.tid] = c.number
	}
}

// What a task that was never able to hand its chunk over wrote is kept, to the
// last event.
func TestReclaim(t *testing.T) {
	for _, tt := range []struct {
		args              []string
		code              int
		events, processes int
		tasks             int
	}{
		{[]string{"partial"}, 0, 10, 1, 1},
		{[]string{"kill"}, 100 + int(syscall.SIGKILL), 10, 1, 1},
		{[]string{"fork"}, 3, 20, 2, 2},
		// more threads than there are chunks
		{[]string{"churn", "200"}, 0, 2000, 1, 200},
		{[]string{"daemon", "300"}, 4, 2 * perChunk, 1, 1},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			r := recorderCmd{Buffer: 16 * format.ChunkSize}
			x := r.run(t, append([]string{fixture.CC(t, "testdata/pool")}, tt.args...)...)
			if x.code != tt.code {
				t.Errorf("status %d, want %d: %s", x.code, tt.code, x.stderr)
			}
			if int(x.res.Events) != tt.events || eventsIn(x.chunks) != tt.events || x.res.Processes != tt.processes || x.res.Tasks != tt.tasks || x.res.Lost != 0 {
				t.Errorf("%+v, %d events in the file, want %d of %d processes, %d tasks", x.res, eventsIn(x.chunks), tt.events, tt.processes, tt.tasks)
			}
		})
	}
}

// A process in a PID namespace of its own goes by an id that nobody has outside.
// Its chunk is its own as long as it lives.
func TestNamespace(t *testing.T) {
	unused := 300
	for unix.Kill(unused, 0) != unix.ESRCH {
		unused++
	}
	r := recorderCmd{Buffer: 16 * format.ChunkSize}
	x := r.run(t, fixture.CC(t, "testdata/pool"), "ns", fmt.Sprint(unused), "2500")
	if x.code == 77 {
		t.Skipf("needs to make a PID namespace (root): %s", x.stderr)
	}
	if x.code != 0 || x.stderr != "" || x.res.Events != 9 || eventsIn(x.chunks) != 9 {
		t.Errorf("status %d, %d events, %d in the file, want 9: %s", x.code, x.res.Events, eventsIn(x.chunks), x.stderr)
	}
}

// Chunks that make no sense are dropped and counted; the others are not harmed.
func TestBadChunks(t *testing.T) {
	var r recorderCmd
	x := r.run(t, fixture.CC(t, "testdata/pool"), "bad")
	if x.code != 0 || x.res.BadChunks != 3 || x.res.Events != 4 || len(x.chunks) != 1 {
		t.Errorf("status %d, %+v, %d chunks", x.code, x.res, len(x.chunks))
	}
}

func TestLost(t *testing.T) {
	var r recorderCmd
	x := r.run(t, fixture.CC(t, "testdata/pool"), "lost", "12345")
	if x.res.Lost != 12345 {
		t.Errorf("lost %d", x.res.Lost)
	}
}

// An image is announced once, and its symbols are written at once.
func TestImage(t *testing.T) {
	var r recorderCmd
	x := r.run(t, fixture.CC(t, "testdata/pool"), "image", "/bin/imagined")
	if len(x.res.Images) != 1 || x.res.Images[0].ID != 0x1234 || x.res.Images[0].Path != "/bin/imagined" || x.res.Images[0].Sites != 7 || x.res.Events != 10 || len(x.chunks) != 3 {
		t.Errorf("%+v, %d chunks", x.res, len(x.chunks))
	}
	if b, err := os.ReadFile(filepath.Join(r.Dir, "0000000000001234.sym")); err != nil || string(b) != "# path: /bin/imagined\n" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := trace.ReadInfo(r.Dir); err != nil || len(info.Images) != 1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// A profile is a file that the runtime writes; what it did not use is cut off.
func TestProfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	r := recorderCmd{Dir: dir, Profile: true}
	x := r.run(t, fixture.CC(t, "testdata/pool"), "profile", filepath.Join(dir, trace.EventsFile))
	if x.code != 0 || x.stderr != "" {
		t.Fatalf("status %d: %s", x.code, x.stderr)
	}
	const want = tablesHeader + 5*format.ChunkSize
	fi, err := os.Stat(filepath.Join(dir, trace.EventsFile))
	if err != nil || fi.Size() != want || x.res.Bytes != want {
		t.Errorf("%v, %+v; want %d bytes", err, x.res, want)
	}
	if x.res.Chunks != 2 || x.res.Lost != 7 || x.res.Tasks != 1 || len(x.res.Images) != 1 {
		t.Errorf("%+v", x.res)
	}
	if _, err := os.Stat(filepath.Join(dir, "0000000000001234.sym")); err != nil {
		t.Error(err)
	}
}

// The newest events are kept, and only as many as fit.
func TestOverwrite(t *testing.T) {
	r := recorderCmd{Buffer: 32 * format.ChunkSize, Policy: trace.PolicyOverwrite}
	x := r.run(t, fixture.CC(t, "testdata/pool"), "threads", "2", "200")
	if x.code != 0 {
		t.Fatalf("status %d: %s", x.code, x.stderr)
	}
	if len(x.chunks) > 32 || len(x.chunks) < 16 {
		t.Errorf("%d chunks kept of a pool of 32", len(x.chunks))
	}
	if got := x.res.Events + x.res.Overwrote; got != 400*perChunk {
		t.Errorf("%d events kept, %d overwritten, want %d", x.res.Events, x.res.Overwrote, 400*perChunk)
	}
	newest := uint32(0)
	for _, c := range x.chunks {
		newest = max(newest, c.number)
	}
	if newest != 199 {
		t.Errorf("newest chunk is %d", newest)
	}
}

// ready waits until the program says that it runs.
func ready(t *testing.T, out io.Reader) *bufio.Reader {
	t.Helper()
	br := bufio.NewReader(out)
	if line, err := br.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return br
}

// The first interrupt is the program's business, the second ends the session:
// the program goes on untraced.
func TestSecondInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			r := recorderCmd{Buffer: 4 << 20}
			cmd := r.command(t, fixture.CC(t, "testdata/pool"), "forever")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var errb bytes.Buffer
			cmd.Stderr = &errb
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			br := ready(t, out)
			cmd.Process.Signal(sig)
			time.Sleep(100 * time.Millisecond)
			if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Fatal("ended by the first signal")
			}
			cmd.Process.Signal(sig)
			// Two signals that come before the recorder runs again are one.
			again := time.AfterFunc(10*time.Second, func() { cmd.Process.Signal(sig) })
			defer again.Stop()
			line, err := br.ReadString('\n')
			again.Stop()
			// The pipe stays open in the program, which must end by itself.
			rest, _ := io.ReadAll(br)
			if err != nil || line != "closed\n" || len(rest) > 0 {
				t.Errorf("program: %q, %q, %v", line, rest, err)
			}
			x := r.finish(t, cmd, new(bytes.Buffer), &errb)
			if x.code != 199 || x.res.Signal != sig || x.res.Ended {
				t.Errorf("status %d, %+v: %s", x.code, x.res, x.stderr)
			}
			if x.res.Events == 0 || eventsIn(x.chunks) != int(x.res.Events) {
				t.Errorf("%d events, %d in the file", x.res.Events, eventsIn(x.chunks))
			}
		})
	}
}

// SIGTERM to the recorder reaches the program, whose end is then the session's.
func TestTerminate(t *testing.T) {
	var r recorderCmd
	cmd := r.command(t, fixture.CC(t, "testdata/pool"), "idle")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready(t, out)
	cmd.Process.Signal(syscall.SIGTERM)
	x := r.finish(t, cmd, new(bytes.Buffer), new(bytes.Buffer))
	if x.code != 100+int(syscall.SIGTERM) {
		t.Errorf("status %d", x.code)
	}
}

// When the recorder is killed, what it had written is a valid trace.
func TestRecorderKilled(t *testing.T) {
	var r recorderCmd
	cmd := r.command(t, fixture.CC(t, "testdata/pool"), "forever")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready(t, out)
	pids := children(t, cmd.Process.Pid)
	t.Cleanup(func() {
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	const enough = format.HeaderSize + 10*format.ChunkSize
	path := filepath.Join(r.Dir, trace.EventsFile)
	wait(t, "something is written", func() bool {
		fi, err := os.Stat(path)
		_, ierr := os.Stat(filepath.Join(r.Dir, trace.InfoFile))
		return err == nil && fi.Size() > enough && ierr == nil
	})
	cmd.Process.Kill()
	cmd.Wait()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The kill can have come in the middle of a write, after whole pages of it.
	off := format.HeaderSize
	for off+format.ChunkHeader <= len(b) && off+int(le.Uint32(b[off+format.CSize:])) <= len(b) {
		if le.Uint32(b[off:]) != format.ChunkMagic {
			t.Fatalf("offset %#x: no chunk", off)
		}
		off += int(le.Uint32(b[off+format.CSize:]))
	}
	listed(t, r.Dir)
	if off < enough {
		t.Errorf("%d bytes", off)
	}
	if info, err := trace.ReadInfo(r.Dir); err != nil || info.ExitStatus != -1 {
		t.Errorf("info: %+v, %v", info, err)
	}
}

func children(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(tasks) == 0 {
		t.Skip("needs /proc/PID/task/TID/children (kernel option CONFIG_PROC_CHILDREN)")
	}
	var pids []int
	var b []byte
	for _, f := range tasks {
		c, _ := os.ReadFile(f)
		b = append(b, c...)
	}
	for _, f := range strings.Fields(string(b)) {
		var p int
		fmt.Sscan(f, &p)
		pids = append(pids, p)
	}
	return pids
}

// A disk that is full, and a limit of the file size, end the tracing and nothing
// else; the trace holds whole chunks.
func TestWriteError(t *testing.T) {
	check := func(t *testing.T, r *recorderCmd, want string) {
		x := r.run(t, fixture.CC(t, "testdata/pool"), "threads", "2", "300")
		if x.code != 0 {
			t.Errorf("status %d: %s", x.code, x.stderr)
		}
		if strings.Count(x.stderr, "\n") != 1 || !strings.Contains(x.stderr, want) {
			t.Errorf("messages: %s", x.stderr)
		}
		if len(x.chunks) < 10 || eventsIn(x.chunks) > 200*perChunk || eventsIn(x.chunks) != int(x.res.Events) {
			t.Errorf("%d events in %d chunks kept, %d counted", eventsIn(x.chunks), len(x.chunks), x.res.Events)
		}
		// What the program had recorded and could not be written is lost.
		if x.res.Lost == 0 || x.res.Lost%perChunk != 0 {
			t.Errorf("%d events lost", x.res.Lost)
		}
		info, err := trace.ReadInfo(r.Dir)
		if err != nil || info.ExitStatus != 0 || info.Lost != x.res.Lost {
			t.Errorf("info: %+v, %v", info, err)
		}
	}
	t.Run("limit", func(t *testing.T) {
		r := recorderCmd{Buffer: 1 << 20, prefix: []string{"sh", "-c", "ulimit -f 5000; exec \"$@\"", "sh"}}
		check(t, &r, "file too large")
	})
	t.Run("full", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Skipf("needs to mount a small file system (root): %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		r := recorderCmd{Buffer: 1 << 20, Dir: filepath.Join(dir, "data")}
		check(t, &r, "no space left")
	})
}

// The pool is found where runtimes look for it, and is closed at the program's exec.
func TestPoolDescriptor(t *testing.T) {
	const name, gone = "/memfd:fentry-pool (deleted)\n", "63 is gone\n1000 is gone\n"
	look := `look() { for fd in 63 1000; do readlink /proc/$1/fd/$fd || echo $fd is gone; done; }; look self; look $PPID; ulimit -Sn; ulimit -Hn`
	for _, tt := range []struct {
		name, before string
		want         string
	}{
		{"low", "ulimit -n 2000", gone + name + "1000 is gone\n2000\n2000\n"},
		{"in use", "ulimit -n 2000; exec 63< /dev/null", "/dev/null\n1000 is gone\n/dev/null\n" + name + "2000\n2000\n"},
		{"limited", "ulimit -n 100", gone + name + "1000 is gone\n100\n100\n"},
		// The program keeps a limit that is too low for either.
		{"low limit", "ulimit -n 60", gone + "63 is gone\n" + name + "60\n60\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "low limit" && !launch.HasCapability(unix.CAP_SYS_RESOURCE) {
				tt.want = gone + gone + "60\n60\n" // which cannot be raised
			}
			r := recorderCmd{prefix: []string{"bash", "-c", tt.before + `; exec "$@"`, "bash"}}
			x := r.run(t, "bash", "-c", look)
			if x.stdout != tt.want {
				t.Errorf("%q, want %q: %s", x.stdout, tt.want, x.stderr)
			}
		})
	}
}

// What the recorder costs an event, and how fast it can be.
func BenchmarkDrain(b *testing.B) {
	prog := fixture.CC(b, "testdata/pool")
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprint(threads), func(b *testing.B) {
			const chunks = 4000
			b.SetBytes(chunks * format.ChunkSize)
			var cpu, wall time.Duration
			var events uint64
			for b.Loop() {
				r := recorderCmd{blind: true}
				x := r.run(b, prog, "threads", fmt.Sprint(threads), fmt.Sprint(chunks/threads))
				if x.code != 0 || x.res.Lost != 0 {
					b.Fatalf("status %d: %s", x.code, x.stderr)
				}
				cpu += x.cpu
				wall += x.res.Duration
				events += x.res.Events
			}
			b.ReportMetric(float64(cpu)/float64(events), "recorder-ns/event")
			b.ReportMetric(float64(events)*8/wall.Seconds()/1e6, "program-MB/s")
		})
	}
}
