package main

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A job is one process to run and measure.
type job struct {
	argv  []string
	env   []string
	dir   string
	stdin string // file
	out   bool   // keep stdout; it is thrown away otherwise
}

// A sample is what one run took.
type sample struct {
	cpu, wall time.Duration // of the process and the children it waited for
	rss       int64         // peak resident set, bytes
	out       string
}

func (b *bench) run(j job) (sample, error) {
	report := filepath.Join(b.dir, "usage")
	cmd := exec.CommandContext(b.ctx, b.launch, append([]string{report}, j.argv...)...)
	cmd.Dir = j.dir
	if cmd.Dir == "" {
		cmd.Dir = b.dir
	}
	cmd.Env = append(os.Environ(), j.env...)
	if j.stdin != "" {
		f, err := os.Open(j.stdin)
		if err != nil {
			return sample{}, err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	var out, errb bytes.Buffer
	if j.out {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errb
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w\n%s", strings.Join(j.argv, " "), err, tail(errb.String()))
	}
	if strings.Contains(errb.String(), "fentry: no trace") {
		return sample{}, fmt.Errorf("%s: %s", strings.Join(j.argv, " "), tail(errb.String()))
	}
	usage, err := os.ReadFile(report)
	if err != nil {
		return sample{}, err
	}
	var micros, kib int64
	if _, err := fmt.Sscan(string(usage), &micros, &kib); err != nil {
		return sample{}, fmt.Errorf("%s: %w", report, err)
	}
	return sample{cpu: time.Duration(micros) * time.Microsecond, wall: wall, rss: kib << 10, out: out.String()}, nil
}

func tail(s string) string {
	if len(s) > 1000 {
		return "..." + s[len(s)-1000:]
	}
	return s
}

// tool runs something that is not measured, in the directory bench was started in.
func (b *bench) tool(argv ...string) error {
	cmd := exec.CommandContext(b.ctx, argv[0], argv[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, tail(string(out)))
	}
	return nil
}

// A variant is one line of a table: a job whose samples pile up round after round.
type variant struct {
	name    string
	job     job
	before  func() error // what a run needs; not measured
	after   func() error // what to look at after each run
	clean   func() error // removes what a run leaves, also one that fails
	samples []sample
	failed  error
}

// from yields all of a list and their indices, beginning with the n-th as if it were a circle.
func from[T any](list []T, n int) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) {
		for k := range list {
			if i := (n + k) % len(list); !yield(i, list[i]) {
				return
			}
		}
	}
}

// inTurn runs all variants round after round, each round beginning with another one: what a run leaves behind, memory
// that is warm or caches that are full, is not always left to the same. What the first warmup rounds take is not
// kept. A peer that fails is dropped and named; the first variant must work.
func (b *bench) inTurn(vs []*variant, warmup int) error {
	for round := range warmup + b.rounds {
		for i, v := range from(vs, round) {
			if v.failed != nil {
				continue
			}
			if v.before != nil {
				if err := v.before(); err != nil {
					return err
				}
			}
			s, err := b.run(v.job)
			if err == nil && v.after != nil {
				err = v.after()
			}
			if v.clean != nil {
				if err := v.clean(); err != nil {
					return err
				}
			}
			if b.ctx.Err() != nil {
				return b.ctx.Err()
			}
			if err != nil {
				if i == 0 {
					return err
				}
				v.failed, v.samples = err, nil
				fmt.Printf("not measured: %s: %s\n", v.name, firstLine(err))
				continue
			}
			if round >= warmup {
				v.samples = append(v.samples, s)
			}
		}
	}
	return nil
}

func cpuOf(s sample) float64  { return s.cpu.Seconds() }
func wallOf(s sample) float64 { return s.wall.Seconds() }

// middle is the median and the minimum of a quantity of samples.
func middle(samples []sample, of func(sample) float64) (med, least float64) {
	v := make([]float64, len(samples))
	for i, s := range samples {
		v[i] = of(s)
	}
	if len(v) == 0 {
		return 0, 0
	}
	slices.Sort(v)
	return v[len(v)/2], v[0]
}

// figures are what the samples of a variant took, in the median and at least: seconds, and bytes of memory.
type figures struct{ cpu, leastCPU, wall, leastWall, rss float64 }

func figuresOf(v *variant) (f figures) {
	f.cpu, f.leastCPU = middle(v.samples, cpuOf)
	f.wall, f.leastWall = middle(v.samples, wallOf)
	f.rss, _ = middle(v.samples, rssOf)
	return f
}

// eachMeasured calls fn for the variants that could be measured.
func eachMeasured(vs []*variant, fn func(v *variant, f figures)) {
	for _, v := range vs {
		if len(v.samples) > 0 {
			fn(v, figuresOf(v))
		}
	}
}

// dirSize is how many bytes of disk a trace takes.
func dirSize(dir string) (int64, error) {
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			n += min(st.Blocks*512, info.Size())
		}
		return nil
	})
	return n, err
}
