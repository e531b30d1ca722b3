package testtool

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// testLimit is how long one test may go on where it is not to look at everything. The longest take two minutes on a
// machine with nothing else to do.
const testLimit = 15 * time.Minute

// mark is the variable by which the processes that a test has started are known, and theirs, wherever their parents went.
const mark = "FENTRY_TESTED_BY"

// Main runs the tests of a package for its TestMain, and returns the exit status. A test that never ends, because a process
// that it waits for does not, is said while it runs: with the stacks of all goroutines and the state of every process that
// tests have started, which are then killed. So the other tests run, and the cause can be found.
func Main(m *testing.M) int {
	flag.Parse()
	defaultSignals()
	emulatorForks()
	w := watch{limit: testLimit, out: os.Stderr}
	if !Wide() && os.Getenv("FENTRY_SOAK") == "" && flag.Lookup("test.fuzz").Value.String() == "" {
		os.Setenv(mark, strconv.Itoa(os.Getpid()))
		go w.run(10*time.Second, nil)
	}
	status := m.Run()
	if w.fired.Load() && status == 0 {
		status = 1
	}
	return status
}

// emulatorForks has children that emulated programs fork not wait for ever: QEMU has threads, and GLib's allocator before 2.76 a lock
// that one of them can have while another one forks. By this variable it uses that of the C library, which knows of forks.
func emulatorForks() { os.Setenv("G_SLICE", "always-malloc") }

// defaultSignals has the programs that tests start be ended by signals that these tests were started to ignore, such as those
// of a terminal by nohup and for whatever a shell runs in the background.
func defaultSignals() {
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // what is caught is not ignored by programs that are executed
		}
	}
}

// A watch looks for tests that go on for too long.
type watch struct {
	limit time.Duration
	out   io.Writer
	fired atomic.Bool
}

// run looks every so often, until it is to stop.
func (w *watch) run(every time.Duration, stop <-chan bool) {
	since := map[string]time.Time{} // by goroutine
	for tick := time.Tick(every); ; {
		select {
		case <-stop:
			return
		case <-tick:
		}
		stacks := goroutines()
		running := runningTests(stacks)
		for id := range since {
			if _, ok := running[id]; !ok {
				delete(since, id)
			}
		}
		for id, name := range running {
			begin, ok := since[id]
			switch {
			case !ok:
				since[id] = time.Now()
			case time.Since(begin) > w.limit:
				w.fired.Store(true)
				fmt.Fprintf(w.out, "\n--- FAIL: %s goes on for more than %v: the processes that tests have started are killed\n%s\n",
					name, w.limit, stacks)
				for _, pid := range startedBy(os.Getpid()) {
					describe(w.out, pid)
					syscall.Kill(pid, syscall.SIGKILL)
				}
				clear(since)
			}
		}
	}
}

// goroutines are the stacks of all goroutines.
func goroutines() []byte {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size {
			return b[:n]
		}
	}
}

var testFrame = regexp.MustCompile(`(?m)^(?:.*/)?([^/\s]*\.(?:Test|Example)\w*(?:\.func[\w.]*)?)\(`)

// runningTests are the names of the test functions that run, by goroutine: not those that wait for their subtests or for
// their turn.
func runningTests(stacks []byte) map[string]string {
	running := map[string]string{}
	for g := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if !bytes.Contains(g, []byte("\ntesting.tRunner(")) || bytes.Contains(g, []byte("\ntesting.(*T).Run(")) ||
			bytes.Contains(g, []byte("\ntesting.(*T).Parallel(")) {
			continue
		}
		head, calls, _ := bytes.Cut(g, []byte("\n"))
		if bytes.HasPrefix(calls, []byte("testing.tRunner.func1(")) { // waits for subtests that run in parallel
			continue
		}
		head, _, _ = bytes.Cut(head, []byte(" ["))
		name := "a test"
		if m := testFrame.FindAllSubmatch(g, -1); m != nil {
			name = string(m[len(m)-1][1])
		}
		running[string(head)] = name
	}
	return running
}

// startedBy are the processes that have the mark of a process, and those that descend from it.
func startedBy(pid int) []int {
	parents := map[int]int{}
	var started []int
	want := fmt.Sprintf("%s=%d", mark, pid)
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		p, _ := strconv.Atoi(filepath.Base(dir))
		stat, _ := os.ReadFile(dir + "/stat")
		_, after, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		if f := strings.Fields(after); len(f) > 1 {
			parents[p], _ = strconv.Atoi(f[1])
		}
		env, _ := os.ReadFile(dir + "/environ")
		if p != pid && slices.Contains(strings.Split(string(env), "\x00"), want) {
			started = append(started, p)
		}
	}
	for p, parent := range parents {
		for depth := 0; parent > 1 && parent != pid && depth < 100; depth++ {
			parent = parents[parent]
		}
		if parent == pid && !slices.Contains(started, p) {
			started = append(started, p)
		}
	}
	slices.Sort(started)
	return started
}

// describe says what a process does.
func describe(out io.Writer, pid int) {
	dir := fmt.Sprintf("/proc/%d", pid)
	args, _ := os.ReadFile(dir + "/cmdline")
	status, _ := os.ReadFile(dir + "/status")
	fmt.Fprintf(out, "process %d: %q\n", pid, strings.Split(strings.TrimRight(string(args), "\x00"), "\x00"))
	for line := range strings.Lines(string(status)) {
		if name, _, _ := strings.Cut(line, ":"); slices.Contains([]string{"PPid", "TracerPid", "SigPnd", "ShdPnd", "SigBlk"}, name) {
			fmt.Fprint(out, "  ", line)
		}
	}
	tasks, _ := filepath.Glob(dir + "/task/*")
	for _, task := range tasks[:min(len(tasks), 50)] {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(task, name))
			return strings.Join(strings.Fields(string(b)), " ")
		}
		stat := read("stat")
		state := stat[strings.LastIndexByte(stat, ')')+1:]
		fmt.Fprintf(out, "  task %s:%.2s, in %s, system call %s, stack %s\n", filepath.Base(task), state, read("wchan"), read("syscall"), read("stack"))
	}
}
