package tracee

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// started starts a program that a test talks with, and kills it when the test is over.
func started(t *testing.T, argv ...string) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader) {
	t.Helper()
	cmd = exec.Command(argv[0], argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, in, out
}

// opened are the threads of a process that runs, until the test ends, and what it has mapped.
func opened(t *testing.T, cmd *exec.Cmd) (*threads, []mapping) {
	t.Helper()
	ts, err := openThreads(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ts.close)
	ms, err := ts.maps()
	if err != nil {
		t.Fatal(err)
	}
	return ts, ms
}

// Who has executed another program since the tracer was found in it is not stopped for that: its memory is another one.
func TestThreadsOfAnotherProgram(t *testing.T) {
	cmd, in, out := started(t, "sh", "-c", "echo; read x || exec sleep 1000")
	if _, err := out.Read(make([]byte, 1)); err != nil { // until then the kernel may still be executing it
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	aux, err := os.ReadFile(dir + "/auxv")
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{t: &Process{pid: cmd.Process.Pid}, aux: aux}
	ts, err := r.threads()
	if err != nil {
		t.Fatal(err)
	}
	ts.close()
	was, err := os.Readlink(dir + "/exe")
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if now, err := os.Readlink(dir + "/exe"); err != nil {
			t.Fatal(err)
		} else if now != was {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it executes nothing")
		}
	}
	if _, err := r.threads(); !errors.Is(err, ErrEnded) {
		t.Errorf("it runs another program: %v", err)
	}
}

// The error of an attachment says that something was left only where it can be.
func TestLeftBy(t *testing.T) {
	failed, why := errors.New("no room"), errors.New("no answer")
	for _, tt := range []struct {
		undoing error
		want    string
	}{
		{nil, "no room"},
		{ErrStays, "no room; what was added to the process is still there: " + ErrStays.Error()},
		{errors.Join(why, ErrEnded), ErrEnded.Error()},
		{fmt.Errorf("undo: %w", ErrOther), ErrOther.Error()},
	} {
		err := leftBy(failed, tt.undoing)
		if err.Error() != tt.want {
			t.Errorf("undoing it said %v: %q, want %q", tt.undoing, err, tt.want)
		}
		if Left(err) != errors.Is(tt.undoing, ErrStays) {
			t.Errorf("something is left if %v: %v", err, Left(err))
		}
	}
	for _, err := range []error{errNoAnswer, errStuck, ErrStays} {
		if !Left(fmt.Errorf("map: %w", err)) {
			t.Errorf("nothing is left if %v", err)
		}
	}
}

// An attachment that has failed as a library was unloaded meanwhile is tried again, if nothing of it was left.
func TestUnloaded(t *testing.T) {
	gone := fmt.Errorf("read: %w", unix.EIO)
	both := []*image{{}, {library: &Library{}}}
	for _, tt := range []struct {
		images []*image
		err    error
		again  bool
	}{
		{both, gone, true}, {both[:1], gone, false}, {both, errors.New("no room"), false}, {both, leftBy(gone, ErrStays), false},
	} {
		var again *TakenError
		err := unloaded(tt.images, tt.err)
		if errors.As(err, &again) != tt.again || !errors.Is(err, tt.err) {
			t.Errorf("%d images, %v: %v, want another try: %v", len(tt.images), tt.err, err, tt.again)
		}
	}
}

// All threads of a process are stopped, also those that are made meanwhile by threads that end; the links of its directory say how
// many there are, so that it is listed once, and not again for each look.
func TestThreadsMade(t *testing.T) {
	const waiting, stops = 20, 100
	cmd, _, out := started(t, fixture.CC(t, "testdata/churn"), strconv.Itoa(waiting))
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ts, err := openThreads(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer ts.close()
	for range stops {
		err := ts.within(false, func() error {
			var have, want []string
			for _, t := range ts.all {
				have = append(have, strconv.Itoa(t.pid))
			}
			tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", ts.pid))
			for _, task := range tasks {
				want = append(want, task.Name())
			}
			slices.Sort(have)
			slices.Sort(want)
			if err == nil && (!slices.Equal(have, want) || len(want) < waiting) {
				err = fmt.Errorf("%q have stopped of %q", have, want)
			}
			if n := ts.count(); err == nil && n != len(want) {
				err = fmt.Errorf("%d threads of %d are counted", n, len(want))
			}
			return err
		})
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A thread that is killed while it is stopped is let go, whichever thread had stopped it: its parent can wait for it.
func TestThreadsKilled(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the main thread, which never ends, gets its turn
	for range 20 {
		cmd := exec.Command("sh", "-c", "(while :; do :; done) > /dev/null & echo $!; wait $!; echo $?")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		ts, err := openThreads(pid)
		if err != nil {
			t.Fatal(err)
		}
		err = ts.within(false, func() error { return syscall.Kill(pid, syscall.SIGKILL) })
		ts.close()
		if err != nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if errors.Is(err, unix.EPERM) {
			t.Skip(err)
		}
		ended := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		line, _ = said.ReadString('\n')
		ended.Stop()
		_ = cmd.Wait()
		if line != "137\n" || err != nil {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// One thread is stopped where that is enough; but all, if so many want to run that it would wait for them at each step.
func TestStopOneOfMany(t *testing.T) {
	threads := 8 * runtime.NumCPU()
	for _, tt := range []struct {
		what string
		want int
	}{{"wait", 1}, {"run", threads + 1}} {
		t.Run(tt.what, func(t *testing.T) {
			cmd, _, out := started(t, fixture.CC(t, "testdata/crowd"), strconv.Itoa(threads), tt.what)
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			running := func() (n int) {
				for tid := range threadsOf(t, cmd.Process.Pid) {
					if s, err := procfs.ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", cmd.Process.Pid, tid)); err == nil && s.State == 'R' {
						n++
					}
				}
				return n
			}
			for deadline := time.Now().Add(time.Minute); running() != tt.want-1; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d threads run", running())
				}
			}
			ts, err := openThreads(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			defer ts.close()
			n := 0
			if err := ts.within(true, func() error { n = len(ts.all); return nil }); err != nil || n != tt.want {
				t.Errorf("%d of %d threads have stopped: %v", n, threads+1, err)
			}
		})
	}
}

func threadsOf(t *testing.T, pid int) map[int]bool {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[int]bool)
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		all[tid] = true
	}
	return all
}

// A thread that is stepped while its process is stopped and continued has no SIGTRAP left: it would end by that.
func TestStepsAmongStops(t *testing.T) {
	cmd, _, out := started(t, fixture.CC(t, "testdata/crowd"), "1", "run")
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ended, done := make(chan struct{}), make(chan struct{})
	defer func() { close(ended); <-done }()
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			default:
				_ = unix.Kill(pid, unix.SIGSTOP)
				_ = unix.Kill(pid, unix.SIGCONT)
			}
		}
	}()
	ts, err := openThreads(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer ts.close()
	const steps = 2000
	stops := 0
	err = ts.within(false, func() error {
		for _, th := range ts.all {
			if th.pid == pid {
				continue
			}
			for signal, i := 0, 0; i < steps; i++ {
				ws, err := th.onward(signal, time.Now().Add(time.Minute))
				if err != nil {
					return err
				}
				if signal = signalOf(ws); ws>>16 != 0 {
					stops++
				}
				if th.stepped() {
					return fmt.Errorf("after step %d, stop %#x, a SIGTRAP is pending", i, ws)
				}
				if th.regs, err = th.registers(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d stops in %d steps", stops, steps)
}

// A thread that waits for a child of vfork for long stops when that is over, if nobody waits for it meanwhile, and is stopped only then.
func TestStopAtVfork(t *testing.T) {
	cmd, _, out := started(t, fixture.CC(t, "testdata/vforks"))
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	ts, err := openThreads(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer ts.close()
	const most = 50 // times that a machine can be so busy that the child has ended
	for i := 0; i < most && ts.alone == 0; i++ {
		stopped := 0
		onThread(func() {
			err = ts.stop(false)
			stopped = len(ts.all)
			ts.letGo()
		})
		if err != nil || stopped != 1 {
			t.Errorf("%d: %d threads stopped: %v", i, stopped, err)
		}
	}
	if ts.alone == 0 {
		t.Error("it was not waited for")
	}
}
