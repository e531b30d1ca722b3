//go:build linux

package fentry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// ErrAttach is wrapped by errors about what cannot be asked for of a program that runs already.
var ErrAttach = errors.New("cannot be had of a process that runs already")

// attachable returns an error for options that only programs can have that are started.
func (o *Options) attachable() error {
	for what, asked := range map[string]bool{
		"--no-ptrace": o.NoPtrace, "--emulator": len(o.Emulator) > 0,
		"-T " + o.Plan.Tracer.String(): o.Plan.Tracer.ChunkSize() != 0,
	} {
		if asked {
			return fmt.Errorf("%s %w", what, ErrAttach)
		}
	}
	return nil
}

// Attach records processes that run already, and the children that they fork from then on, until all of them have ended
// or ctx is done. Then what it has put into them is taken out again, and they go on. Of several processes those are left
// out that cannot be recorded, with a message to Logf. Programs that they execute are recorded as those of Run are, and
// keep what was put into them, as these do. Libraries that Options.Libraries names are recorded whether they are loaded
// already or later.
//
// Options that only started programs can have are an error that wraps ErrAttach. So are system calls of processes that can
// cancel threads. An error means that no process was
// recorded, and that none was changed. Later errors are in the result.
//
// Nothing else in this program may wait for a process that it attaches to, such as exec.Cmd.Wait: the kernel tells of
// stops of the process whoever of the program's threads waits first.
func Attach(ctx context.Context, pids []int, o Options) (*Result, error) {
	if len(pids) == 0 {
		return nil, errors.New("no process to attach to")
	}
	if err := o.attachable(); err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := session.CheckAttach(pid); err != nil && len(pids) == 1 {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
	}
	if o.Live != nil {
		o.Policy = trace.PolicyOverwrite
	}
	if o.StackEvery != 0 {
		return sampleRunning(ctx, pids, o)
	}
	for tries := 1; ; tries++ {
		res, err := attach(ctx, pids, o)
		switch {
		case !errors.Is(err, session.ErrExecuted) || ctx.Err() != nil:
			return res, err
		case tries == attachTries:
			return nil, fmt.Errorf("%w (%d times)", err, tries)
		}
	}
}

// attachTries bounds how often a process is attached to that executes one program after the other.
const attachTries = 5

// attach is Attach, of processes that can be attached to. If there is one, and it executes another program while it is looked at,
// the error wraps session.ErrExecuted.
func attach(ctx context.Context, pids []int, o Options) (*Result, error) {
	programs := session.OpenPrograms(pids)
	defer programs.Close()
	o.Plan.Unwinders = unwinders(pids)
	if o.Syscalls && o.Plan.Unwinders != patch.UnwindersKnow {
		if err := uncancelled(pids); err != nil {
			return nil, err
		}
	}
	usual := func() {}
	if o.Hurry {
		usual = osthread.Hurry()
		defer usual()
	}
	attached := func() {
		programs.Close() // a descriptor each
		usual()
	}
	o.Plan.RootsElsewhere = len(o.Libraries) > 0
	if o.Plan.Unwinders == patch.UnwindersBlind && o.LibraryCalls && o.Plan.Tracer != patch.Function && o.Logf != nil {
		o.Logf("calls of libraries' functions are not recorded, as exceptions from there would not find the caller (%s); with -T function they are",
			record.ReasonJumpsAway)
	}
	follow := o
	follow.NoInherit = false
	a := newExecuted(&follow)
	if a == nil {
		return nil, fmt.Errorf("processes that run: %w", ErrAttach)
	}
	defer a.close()
	a.options.Running, a.options.Keep, a.logf = true, true, o.Logf
	var err error
	if a.capturing, err = newCapturing(&o); err != nil {
		return nil, err
	}
	r := &run{o: o, executed: a}
	defer r.added.close()
	if !o.NoInherit && o.Live == nil { // whoever looks at a recording knows of what was attached to
		r.followed = newExecuted(&o)
		r.followed.capturing = a.capturing
		defer r.followed.close()
	}
	so := session.Options{
		Path: fmt.Sprintf("process %d", pids[0]), Args: session.CommandLine(pids[0]),
		Dir: o.Dir, Buffer: o.Buffer, Policy: o.Policy, Flight: o.Flight, Info: o.Info, Logf: o.Logf, For: o.For, Hurry: o.Hurry,
		Attach:  &session.Attach{PIDs: pids, Programs: programs, Plan: a.attach, Attached: attached},
		Symbols: r.symbols,
		Prepare: func(pool string) (*patch.Memory, error) {
			a.pool = pool
			if r.followed != nil {
				r.followed.pool = pool
			}
			return nil, nil
		},
	}
	if r.followed != nil {
		so.Follow = &session.Follow{Plan: r.followed.memory, Whole: r.followed.whole, Ahead: r.followed.ahead, Left: r.followed.leave}
		if r.libraries, err = newLibraries(&Program{}, &o, true); err != nil {
			return nil, err
		}
	}
	if r.libraries != nil {
		r.libraries.capturing = a.capturing
		so.Library, so.OnlySwaps = r.libraries.open, o.onlySwaps()
		defer r.libraries.close()
	}
	if so.Attach.Library, err = a.libraries(&o, pids); err != nil {
		return nil, err
	}
	r.controlled(&so)
	so.WorkDir, _ = os.Readlink(session.ProcessDir(pids[0]) + "/cwd")
	if so.WorkDir != "" {
		so.Path = "/proc" // it is not used, and must be absolute
	}
	so.Info.Tracer = o.Plan.Tracer.String()
	so.Overhead, so.OverheadAll = o.overhead()
	so.Switches = o.switches()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := &Result{}
	if out.Result, err = session.Run(ctx, so); err != nil {
		return nil, err
	}
	out.Executed = a.results()
	out.Libraries, out.UnmatchedLibraries = a.loaded.results()
	for _, x := range out.Executed {
		out.Traced += x.Traced
	}
	out.Executed = append(out.Executed, r.followed.results()...)
	more, unmatched := r.libraries.results()
	for _, l := range more {
		if !slices.ContainsFunc(out.Libraries, func(o Library) bool { return o.Path == l.Path }) {
			out.Libraries = append(out.Libraries, l)
		}
	}
	if r.libraries != nil {
		out.UnmatchedLibraries = slices.DeleteFunc(out.UnmatchedLibraries, func(p string) bool { return !slices.Contains(unmatched, p) })
	}
	return out, nil
}

// sayLeft says which functions of a program that runs are left alone for that. They would only be missed where all are recorded.
func (e *executed) sayLeft(path string, p *patch.Plan) {
	if e.logf == nil || p.Options.Select.Chooses() {
		return
	}
	if n, why := p.LeftRunning(); n > 0 {
		e.logf("%s: %d functions are left alone, as it runs already: %s", path, n, why)
	}
}

// attach is what is put into a process that runs a program, at an address of that; 0: where most have room.
func (e *executed) attach(path string, exe *os.File, at uint64) (*patch.Memory, error) {
	if at != 0 {
		return e.elsewhere(path, exe, at)
	}
	m := e.memory(path, exe)
	for _, x := range e.results() {
		if x.Path == path && x.Untraced != "" && (m == nil || e.loaded == nil) {
			return nil, fmt.Errorf("%s: %s", path, x.Untraced)
		}
	}
	if m == nil {
		return nil, fmt.Errorf("%s: traces itself", path)
	}
	return m, nil
}

// elsewhere plans a program that was planned before once more, for one process, where there is room in it.
func (e *executed) elsewhere(path string, exe *os.File, at uint64) (*patch.Memory, error) {
	x, err := new(executedFile), error(nil)
	if p := e.found(path, exe); p != nil {
		x.planned, err = e.place(p, at)
	} else {
		x.planned, err = e.make(path, exe, at)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.moved = append(e.moved, x)
	if x.memory != nil && e.loaded != nil { // nothing is traced in the program, but in libraries
		err = nil
	}
	return x.memory, err
}

// found is a program of which it was found before what can be traced in it; nil: it was not.
func (e *executed) found(path string, exe *os.File) *Program {
	var st unix.Stat_t
	if unix.Fstat(int(exe.Fd()), &st) != nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.files[fileKey(path, &st)]; x != nil && x.memory != nil {
		return x.program
	}
	return nil
}
