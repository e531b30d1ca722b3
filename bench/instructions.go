package main

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"text/tabwriter"
)

// wantedOfAMD64 is how many times amd64's instructions arm64's entry and exit may take.
const wantedOfAMD64 = 1.2

// Calls in the two runs whose difference counts: between them no chunk ends, with
// one event a call or two, and the runtime does not look at the thread's name.
const fewCalls, manyCalls = 2200, 3800

// A counter counts the instructions of programs for a machine.
type counter struct {
	machine string
	cc      string
	nops    string // argument of -fpatchable-function-entry
	needs   []string
	argv    func(log string) []string
	count   func(log, program string) (int64, error)
}

var counters = []counter{
	{"amd64", "gcc", "5", []string{"gcc", "valgrind"}, func(log string) []string {
		return []string{"valgrind", "-q", "--tool=callgrind", "--toggle-collect=main", "--callgrind-out-file=" + log}
	}, callgrindTotal},
	{"arm64", "aarch64-linux-gnu-gcc", "2", []string{"aarch64-linux-gnu-gcc", "qemu-aarch64"}, func(log string) []string {
		return []string{"qemu-aarch64", "-singlestep", "-d", "exec,nochain", "-D", log}
	}, countTrace},
}

var summary = regexp.MustCompile(`(?m)^(?:summary|totals): (\d+)`)

// callgrindTotal reads how many instructions a program ran from callgrind's file.
func callgrindTotal(log, _ string) (int64, error) {
	b, err := os.ReadFile(log)
	if err != nil {
		return 0, err
	}
	m := summary.FindSubmatch(b)
	if m == nil {
		return 0, fmt.Errorf("%s: no total", log)
	}
	return strconv.ParseInt(string(m[1]), 10, 64)
}

// countTrace counts the blocks in qemu's log: with -singlestep each is an
// instruction. qemu does not wipe memory of forked children, so the runtime looks at
// the thread's id at each event, which it does nowhere else: these instructions, from
// the tbz that tests bit 3 of the block's address to the next b, do not count.
func countTrace(log, program string) (n int64, err error) {
	image, err := elf.Open(program)
	if err != nil {
		return 0, err
	}
	defer image.Close()
	words := map[uint64]uint32{}
	word := func(pc uint64) uint32 {
		w, ok := words[pc]
		if !ok {
			var b [4]byte
			for _, p := range image.Progs {
				if p.Type == elf.PT_LOAD && pc-p.Vaddr < p.Filesz {
					if _, err := p.ReadAt(b[:], int64(pc-p.Vaddr)); err == nil {
						w = binary.LittleEndian.Uint32(b[:])
					}
				}
			}
			words[pc] = w
		}
		return w
	}
	f, err := os.Open(log)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	aside, test := false, uint64(0)
	for {
		line, err := r.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("Trace ")) {
			// Trace 0: host [flags/pc/...] symbol
			f := bytes.Split(line, []byte{'/'})
			if len(f) < 3 {
				return 0, fmt.Errorf("%s: %q", log, line)
			}
			pc, err := strconv.ParseUint(string(f[1]), 16, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", log, err)
			}
			w := word(pc)
			if test != 0 && pc != test+4 {
				aside = true
			}
			test = 0
			if w&0xfff80000 == 0x36180000 { // tbz xN, #3, ...
				test = pc
			}
			if !aside {
				n++
			}
			if aside && w>>26 == 5 { // b
				aside = false
			}
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// perCall returns how many instructions a program runs for each call, which its last argument is the number of.
func (b *bench) perCall(c counter, program string, args ...string) (float64, error) {
	var n [2]int64
	for i, calls := range []int{fewCalls, manyCalls} {
		log := filepath.Join(b.dir, "count.log")
		j := job{
			argv: append(append(c.argv(log), program), append(args, strconv.Itoa(calls))...),
			env:  []string{"FENTRY_DATA=" + filepath.Join(b.dir, "count.data")},
		}
		if _, err := b.run(j); err != nil {
			return 0, err
		}
		var err error
		if n[i], err = c.count(log, program); err != nil {
			return 0, err
		}
		if err := os.Remove(log); err != nil {
			return 0, err
		}
	}
	return float64(n[1]-n[0]) / (manyCalls - fewCalls), nil
}

// instructions prints what tracing adds to a call, in instructions: exact, and the
// same whatever else the machine does.
func (b *bench) instructions() error {
	src, err := b.extract("count.c")
	if err != nil {
		return err
	}
	tracers := []struct {
		name  string
		flags []string
		limit float64 // what the ratio may be; 0: no target
	}{
		{"function_graph", nil, wantedOfAMD64},
		{"function_graph --clock none", []string{"--clock", "none"}, wantedOfAMD64},
		{"function", []string{"--tracer", "function"}, wantedOfAMD64},
		{"profile", []string{"--tracer", "profile"}, wantedOfAMD64},
		{"function_graph --depth", []string{"--depth", "50"}, wantedOfAMD64},
		{"function_graph --threshold", []string{"--threshold", "1ms"}, wantedOfAMD64},
		// amd64's is in the thunk; arm64 has no instruction that adds to memory, and calls a routine.
		{"count", []string{"--tracer", "count"}, 0},
	}
	added := map[string][]float64{}
	for _, c := range counters {
		if c.machine == "arm64" && runtime.GOARCH == "arm64" {
			c.argv = counters[0].argv
			c.count = callgrindTotal
		}
		for _, tool := range c.needs {
			if !have(tool) {
				fmt.Printf("not measured: %s: %s is not installed\n", c.machine, tool)
				return nil
			}
		}
		plain := filepath.Join(b.dir, "count-"+c.machine)
		if err := b.tool(c.cc, "-O2", "-static", "-fpatchable-function-entry="+c.nops, "-o", plain, src); err != nil {
			return err
		}
		base, err := b.perCall(c, plain)
		if err != nil {
			return err
		}
		for _, t := range tracers {
			traced := plain + ".traced"
			argv := append([]string{b.fentry, "patch", "-F", "empty", "-o", traced}, t.flags...)
			if err := b.tool(append(argv, plain)...); err != nil {
				return err
			}
			n, err := b.perCall(c, traced)
			if err != nil {
				return err
			}
			added[c.machine] = append(added[c.machine], n-base)
		}
	}
	fmt.Println("Instructions that tracing adds to a call: thunk, entry and exit")
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "amd64\tarm64\tratio\twanted\t\t")
	for i, t := range tracers {
		a, z := added["amd64"][i], added["arm64"][i]
		wanted := ""
		if t.limit != 0 {
			wanted = fmt.Sprintf("<= %.1f", t.limit)
		}
		fmt.Fprintf(w, "%.1f\t%.1f\t%.2f\t%s\t %s\t\n", a, z, z/a, wanted, t.name)
	}
	return w.Flush()
}
