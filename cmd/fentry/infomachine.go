package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"

	fentry "github.com/fentry-dev/fentry"
)

// What tracing a call costs depends on the machine: nearly all of it is reading the counter twice, which takes 7 ns on
// one processor and 25 on another, or in a virtual machine that traps it microseconds. No figure in a manual holds for
// all, so info --machine measures: a program of its own calls an empty function a million times, untraced and traced.

// machineCost is what info --machine says. Times are in nanoseconds.
type machineCost struct {
	Read   float64 `json:"clock_read_ns"`
	Call   float64 `json:"untraced_call_ns"`
	Traced float64 `json:"traced_call_ns"` // what tracing adds
	Way    string  `json:"way"`            // how the program was traced, and why so
}

// measureMachine runs the program, several times because others use the processors, too; the least counts.
func measureMachine() (c machineCost, err error) {
	dir, err := os.MkdirTemp("", "fentry-machine-")
	if err != nil {
		return c, pathError(err)
	}
	defer os.RemoveAll(dir)
	prog := filepath.Join(dir, "cost")
	if err := os.WriteFile(prog, costProgram, 0o700); err != nil {
		return c, pathError(err)
	}
	call, traced, read, way := math.Inf(1), math.Inf(1), math.Inf(1), ""
	for range 3 {
		for _, into := range []*float64{&call, &traced} {
			var out bytes.Buffer
			cmd := &exec.Cmd{Path: prog, Args: []string{prog}, Stdout: &out}
			if into == &call {
				err = cmd.Run()
			} else {
				var res *fentry.Result
				res, err = fentry.Run(context.Background(), cmd, fentry.Options{Dir: filepath.Join(dir, "data")})
				if err == nil {
					way = res.Way
				}
			}
			if err != nil {
				return c, fmt.Errorf("measuring: %w", err)
			}
			var calls, reads float64 // ns for a million of each
			if _, err := fmt.Sscan(out.String(), &calls, &reads); err != nil {
				return c, fmt.Errorf("measuring: the program says %q: %w", out.String(), err)
			}
			*into, read = min(*into, calls/1e6), min(read, reads/1e6)
		}
	}
	return machineCost{Read: read, Call: call, Traced: max(traced-call, 0), Way: way}, nil
}

// infoMachine prints what this machine's clock and a traced call cost.
func infoMachine(w io.Writer, asJSON bool) error {
	c, err := measureMachine()
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(w).Encode(c)
	}
	_, err = fmt.Fprintf(w, "reading the clock  %.1f ns\ntracing a call     %.1f ns: %.1f clock reads, of which a call and its "+
		"return are 2\na program is traced  %s\n", c.Read, c.Traced, c.Traced/c.Read, c.Way)
	return err
}
