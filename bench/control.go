package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/fentry-dev/fentry/session"
)

// wantedSettled is how much longer calls of functions may take in percent that were recorded, and are off again.
const wantedSettled = 2

// control prints what functions cost that were recorded and are off, once they have their code back, and how long it takes to
// switch all.
func (b *bench) control() error {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not measured: processes are attached to on x86-64")
		return nil
	}
	src, err := b.extract("off.c")
	if err != nil {
		return err
	}
	type row struct {
		functions int
		plain     []map[string]float64
		settled   []map[string]float64
		toggle    []time.Duration
	}
	calls, rows := "10000000", []*row{{functions: 100}, {functions: 50000}, {functions: 200000}}
	if b.quick {
		calls, rows = "1000000", rows[:1]
	}
	for _, r := range rows {
		program := filepath.Join(b.dir, fmt.Sprintf("control-%d", r.functions))
		if err := b.tool("gcc", "-O2", "-pthread", "-DMOST="+strconv.Itoa(r.functions), "-o", program, src); err != nil {
			return err
		}
		for range b.rounds {
			argv := []string{program, calls, strconv.Itoa(r.functions)}
			s, err := b.run(job{argv: argv, out: true})
			if err != nil {
				return err
			}
			plain, err := parseOff(s.out)
			if err != nil {
				return err
			}
			settled, toggle, err := b.settled(argv)
			if err != nil {
				return err
			}
			r.plain, r.settled, r.toggle = append(r.plain, plain), append(r.settled, settled), append(r.toggle, toggle)
		}
	}
	fmt.Println("Functions that were recorded (record -p) and are off, in ns a call; and how long tracing_on takes to be answered, in ms")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "functions\tuntraced\t(min)\toff\t(min)\tmore\twanted\tswitched\t(min)\t")
	for _, r := range rows {
		plain, plainMin := middleOf(r.plain, "call")
		off, offMin := middleOf(r.settled, "call")
		toggle, toggleMin := middleOfList(r.toggle)
		fmt.Fprintf(w, "%d\t%.2f\t%.2f\t%.2f\t%.2f\t%+.1f %%\t%d %%\t%.2f\t%.2f\t\n", r.functions, plain, plainMin, off, offMin,
			(off/plain-1)*100, wantedSettled, toggle, toggleMin)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return b.switching()
}

// wantedSwitched is how long switching 200,000 functions may take, in us.
const wantedSwitched = 20

// switching prints how long it takes to switch 200,000 functions once their process is found: the benchmark of the package that
// does it, to its own memory by the same calls.
func (b *bench) switching() error {
	c := exec.CommandContext(b.ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkSwitch$/^200000$", "-count", strconv.Itoa(b.rounds),
		"./session/internal/tracee")
	out, err := c.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var times []time.Duration
	for _, m := range regexp.MustCompile(`\s([0-9.]+) ns/op`).FindAllSubmatch(out, -1) {
		ns, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return err
		}
		times = append(times, time.Duration(ns))
	}
	if len(times) == 0 {
		return fmt.Errorf("no benchmark: %s", out)
	}
	med, least := middleOfList(times)
	_, err = fmt.Printf("Reading, changing and writing 200,000 switches: %.0f us (%.0f at least, %d wanted)\n", med*1e3, least*1e3, wantedSwitched)
	return err
}

// settled attaches to a program while it runs, switches all off and has them get their code back. The program measures in
// rounds, of which most come then: it prints the median.
func (b *bench) settled(argv []string) (call map[string]float64, toggle time.Duration, err error) {
	p := exec.CommandContext(b.ctx, argv[0], argv[1:]...)
	ended := make(chan struct{})
	var out []byte
	r, w, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	p.Stdout = w
	if err := p.Start(); err != nil {
		return nil, 0, err
	}
	w.Close()
	go func() {
		defer close(ended)
		buf := make([]byte, 200)
		n, _ := r.Read(buf)
		out = buf[:n]
		r.Close()
	}()
	defer func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}()
	pid := p.Process.Pid
	c := exec.CommandContext(b.ctx, b.fentry, "record", "-q", "-p", strconv.Itoa(pid), "--policy", "overwrite", "--overhead", "no",
		"-o", filepath.Join(b.dir, "control.data"))
	if err := c.Start(); err != nil {
		return nil, 0, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err = session.Control(pid, "tracing_on = 0"); err == nil || time.Now().After(deadline) {
			break
		}
	}
	began := time.Now()
	for _, line := range []string{"tracing_on = 1", "set_ftrace_notrace = *", "settle"} {
		if err == nil {
			_, err = session.Control(pid, line)
		}
		if toggle == 0 {
			toggle = time.Since(began)
		}
	}
	if err != nil {
		return nil, 0, err
	}
	<-ended
	if err := c.Wait(); err != nil {
		return nil, 0, err
	}
	call, err = parseOff(string(out))
	return call, toggle, err
}
