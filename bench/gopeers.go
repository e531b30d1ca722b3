package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// What a program of Go notices of being traced, and what others take for a call.

// wantedGoNoticed is for how long collections take, and for how much of a profile is not that of the function that runs.
const wantedGoNoticed = 1.2

// goNoticed prints both.
func (b *bench) goNoticed(data string) error {
	prog, err := b.buildGo("gogc")
	if err != nil {
		return err
	}
	n := "40"
	if b.quick {
		n = "5"
	}
	samples := filepath.Join(b.dir, "cpu.profile")
	argv := []string{prog, n, samples}
	traced := append([]string{b.fentry, "record", "-q", "--overhead", "no", "--flight", "64M", "-o", data, "-F", "main.*"}, argv...)
	// On one processor two goroutines wait for each other, and the recorder has the rest of the machine; with more, also threads
	// wait, for the kernel's scheduler, which shares them with whoever has work.
	runs := func(of string, processors int, wanted float64, find func() (float64, error)) []*goRun {
		env := []string{fmt.Sprint("GOMAXPROCS=", processors)}
		return []*goRun{
			{name: "untraced", argv: argv, of: of, env: env, find: find},
			{name: "fentry record -F 'main.*'", argv: traced, of: of, env: env, find: find, wanted: wanted},
		}
	}
	const head = "A collection while two goroutines call a traced function all the time, GOMAXPROCS=%d, in ms"
	if err := b.goTable(fmt.Sprintf(head, 1), runs("gc", 1, wantedGoNoticed, nil), data); err != nil {
		return err
	}
	if all := runtime.NumCPU(); all > 1 {
		if err := b.goTable(fmt.Sprintf(head, all), runs("gc", all, 0, nil), data); err != nil {
			return err
		}
	}
	return b.goTable("Samples of the program's profile of itself, for each that is of the calling function", runs("samples", 1,
		wantedGoNoticed, func() (float64, error) { return samplesEach(prog, samples, "main.loop") }), data)
}

// samplesEach returns how many samples a profile has for each of a function and what that calls.
func samplesEach(prog, path, function string) (float64, error) {
	out, err := exec.Command("go", "tool", "pprof", "-top", "-cum", "-nodefraction=0", prog, path).Output()
	if err != nil {
		return 0, fmt.Errorf("go tool pprof: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line) // flat, flat%, sum%, cum, cum%, function
		if len(f) != 6 || f[5] != function {
			continue
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(f[4], "%"), 64)
		if err == nil && percent > 0 {
			return 100 / percent, nil
		}
	}
	return 0, fmt.Errorf("%s: nothing of it is %s's:\n%s", path, function, tail(string(out)))
}

// goPeers prints what a call takes that others trace: those of which one call takes as long as thousands here.
func (b *bench) goPeers(call string) error {
	few := []string{"3", "200"}
	runs := []*goRun{{name: "untraced", argv: append([]string{call}, "15", "400000"), of: "call"}}
	dlv, err := b.delve()
	if err != nil {
		fmt.Printf("not measured: dlv trace: %v\n", err)
	} else {
		runs = append(runs, &goRun{
			name: "dlv trace", of: "call", argv: append([]string{dlv, "trace", "--exec", call, `^main\.empty$`, "--"}, few...),
		})
	}
	probes, err := b.probe(call)
	if err != nil {
		fmt.Printf("not measured: uprobes: %v\n", err)
	} else {
		defer probes.remove()
		runs = append(runs, &goRun{
			name: "uprobe and uretprobe", of: "call", argv: append([]string{call}, few...), before: probes.add, after: probes.remove,
		})
	}
	if len(runs) == 1 {
		return nil
	}
	return b.goTable("The same call traced by others, in ns", runs, filepath.Join(b.dir, "none"))
}

// delve builds the debugger.
func (b *bench) delve() (string, error) {
	dir := filepath.Join(b.dir, "bin")
	err := b.tool("env", "GOBIN="+dir, "GOFLAGS=", "go", "install", "github.com/go-delve/delve/cmd/dlv@v1.26.0")
	return filepath.Join(dir, "dlv"), err
}

// uprobes are probes of the kernel at a function's entry and return, in a group of their own.
type uprobes struct{ dir, place string }

const probeGroup = "fentrybench"

// probe finds the place of main.empty for the kernel, and tries whether it can be probed.
func (b *bench) probe(prog string) (*uprobes, error) {
	f, err := elf.Open(prog)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	text := f.Section(".text")
	for _, s := range symbols {
		if s.Name == "main.empty" && text != nil {
			u := &uprobes{"/sys/kernel/tracing", fmt.Sprintf("%s:%#x", prog, s.Value-text.Addr+text.Offset)}
			return u, errors.Join(u.add(), u.remove())
		}
	}
	return nil, fmt.Errorf("%s: no main.empty", prog)
}

func (u *uprobes) write(name, text string) error {
	f, err := os.OpenFile(filepath.Join(u.dir, name), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (u *uprobes) add() error {
	for _, p := range []string{"p:" + probeGroup + "/in ", "r:" + probeGroup + "/out "} {
		if err := u.write("uprobe_events", p+u.place+"\n"); err != nil {
			return err
		}
	}
	return u.write("events/"+probeGroup+"/enable", "1")
}

func (u *uprobes) remove() error {
	if b, err := os.ReadFile(filepath.Join(u.dir, "uprobe_events")); err == nil && !strings.Contains(string(b), probeGroup) {
		return nil
	}
	err := u.write("events/"+probeGroup+"/enable", "0")
	for _, name := range []string{"in", "out"} {
		err = errors.Join(err, u.write("uprobe_events", "-:"+probeGroup+"/"+name+"\n"))
	}
	return err
}
