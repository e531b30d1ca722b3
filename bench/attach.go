package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"text/tabwriter"
	"time"
)

// What a process may be stopped for at most: with few functions, and with 200,000; and for each of its threads.
const (
	wantedAttach     = 2 * time.Millisecond
	wantedAttachMany = 5 * time.Millisecond
	wantedAThread    = 35 * time.Microsecond
	wantedDetach     = 5 * time.Millisecond
)

// stopsLine is what record says of that.
var stopsLine = regexp.MustCompile(`was stopped for (\S+) at most to attach, and for (\S+) to detach`)

// attach prints for how long a process is stopped that is attached to and detached from, by its functions and threads: the
// longest time for which any of its threads, or all, did not run.
func (b *bench) attach() error {
	if runtime.GOARCH != "amd64" {
		fmt.Println("not measured: processes are attached to on x86-64")
		return nil
	}
	src, err := b.extract("off.c")
	if err != nil {
		return err
	}
	type row struct {
		functions, threads int
		buffer, lasts      string
		program            string
		attach, detach     []time.Duration
	}
	most := 200000
	if b.quick {
		most = 20000
	}
	var rows []*row
	for _, functions := range []int{100, most} {
		program := filepath.Join(b.dir, fmt.Sprintf("attach-%d", functions))
		if err := b.tool("gcc", "-O2", "-pthread", "-DMOST="+strconv.Itoa(functions), "-o", program, src); err != nil {
			return err
		}
		for _, threads := range []int{0, 99} {
			rows = append(rows, &row{functions: functions, threads: threads, buffer: "64M", lasts: "100ms", program: program})
		}
	}
	// Most of it is in use when it is unmapped.
	rows = append(rows, &row{functions: rows[0].functions, buffer: "1G", lasts: "1500ms", program: rows[0].program})
	for round := range b.rounds {
		for _, r := range from(rows, round) {
			attach, detach, err := b.stops(r.program, r.functions, r.threads, "-b", r.buffer, "--for", r.lasts)
			if err != nil {
				return err
			}
			r.attach, r.detach = append(r.attach, attach), append(r.detach, detach)
		}
	}
	fmt.Println("The longest stop of a process that is attached to (record -p) and detached from, in ms")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "functions\tthreads\tbuffer\tattach\t(min)\twanted\tdetach\t(min)\twanted\t")
	for _, r := range rows {
		threads := time.Duration(r.threads+1) * wantedAThread
		wanted := wantedAttach + threads
		if r.functions > 100 {
			wanted = wantedAttachMany + threads
		}
		attach, attachMin := middleOfList(r.attach)
		detach, detachMin := middleOfList(r.detach)
		fmt.Fprintf(w, "%d\t%d\t%s\t%.2f\t(%.2f)\t%.2f\t%.2f\t(%.2f)\t%.2f\t\n", r.functions, r.threads+1, r.buffer, attach,
			attachMin, wanted.Seconds()*1e3, detach, detachMin, (wantedDetach+threads).Seconds()*1e3)
	}
	return w.Flush()
}

// stops attaches to a program for a moment, and returns for how long it was stopped.
func (b *bench) stops(program string, functions, threads int, options ...string) (attach, detach time.Duration, err error) {
	const forever = "1000000000"
	p := exec.CommandContext(b.ctx, program, forever, strconv.Itoa(functions), strconv.Itoa(threads))
	if err := p.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	}()
	time.Sleep(100 * time.Millisecond)
	args := []string{"record", "-v", "-p", strconv.Itoa(p.Process.Pid), "--policy", "overwrite", "-o", filepath.Join(b.dir, "attach.data")}
	c := exec.CommandContext(b.ctx, b.fentry, append(args, options...)...)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Run(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	m := stopsLine.FindSubmatch(said.Bytes())
	if m == nil {
		return 0, 0, fmt.Errorf("how long it was stopped is not said: %s", said.Bytes())
	}
	if attach, err = time.ParseDuration(string(m[1])); err == nil {
		detach, err = time.ParseDuration(string(m[2]))
	}
	return attach, detach, err
}

// middleOfList returns the median and the minimum, in ms.
func middleOfList(ds []time.Duration) (med, least float64) {
	ms := make([]float64, len(ds))
	for i, d := range ds {
		ms[i] = d.Seconds() * 1e3
	}
	med = median(ms)
	return med, ms[0]
}
