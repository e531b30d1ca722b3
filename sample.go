//go:build linux

package fentry

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// A StackMode says how stacks are taken on a timer.
type StackMode uint8

const (
	// StackFull: from all registers, when the timer asks; no function may be traced.
	StackFull StackMode = iota + 1
	// StackPartial: the same, from the stack pointer and the program counter alone. A register is known where a frame has
	// saved it, and walks end where one is needed that is not.
	StackPartial
	// StackDeferred: from all registers, at the thread's next event.
	StackDeferred
)

// sample has a session take stacks on a timer, if that is asked for. Where functions are traced the runtime in the program
// does, at their events: it knows where return addresses are. Where the kernel does not allow it, the program's system calls
// do.
func (r *run) sample(so *session.Options) {
	if r.o.StackEvery == 0 {
		return
	}
	err := errors.New("so it was asked for")
	switch {
	case !r.o.Plan.NoFunctions || r.o.StackMode == StackDeferred:
	case r.emulated: // the kernel knows the emulator's own stacks
		err = errors.New("an emulator runs the program")
	default:
		if err = session.CanSample(r.o.StackEvery); err == nil {
			so.SampleEvery, so.SamplePartial = r.o.StackEvery, r.o.StackMode == StackPartial
			return
		}
	}
	if r.o.Plan.NoFunctions {
		so.Info.Samples = &trace.InfoSamples{Every: r.o.StackEvery, Reason: err.Error()}
		if r.o.Logf != nil && r.o.StackMode != StackDeferred {
			r.o.Logf("stacks are taken at system calls only: %v", err)
		}
		r.o.Syscalls = true
	} else {
		so.Info.Samples = &trace.InfoSamples{Every: r.o.StackEvery, Reason: "functions are traced"}
	}
	r.o.Plan.StackEvery = r.o.StackEvery
}

// sampleRunning takes the stacks of processes that run already, and of all that they start. Nothing is put into them.
func sampleRunning(ctx context.Context, pids []int, o Options) (*Result, error) {
	switch err := session.CanSample(o.StackEvery); {
	case err != nil:
		return nil, fmt.Errorf("stacks on a timer: %w", err)
	case !o.Plan.NoFunctions || o.Syscalls || o.StackMode == StackDeferred:
		return nil, fmt.Errorf("stacks on a timer, with functions or system calls, %w", ErrAttach)
	}
	so := session.Options{
		Path: "/proc", Args: session.CommandLine(pids[0]), Dir: o.Dir, Buffer: o.Buffer, Policy: o.Policy, Info: o.Info, Logf: o.Logf,
		For: o.For, Attach: &session.Attach{PIDs: pids}, Untouched: true,
		SampleEvery: o.StackEvery, SamplePartial: o.StackMode == StackPartial,
	}
	so.WorkDir, _ = os.Readlink(session.ProcessDir(pids[0]) + "/cwd")
	so.Info.Tracer = o.Plan.Tracer.String()
	res, err := session.Run(ctx, so)
	if err != nil {
		return nil, err
	}
	return &Result{Result: res}, nil
}
