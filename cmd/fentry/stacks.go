package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/internal/syscalls"
	"github.com/fentry-dev/fentry/stacks"
)

type stacksCmd struct {
	all      bool
	exact    bool
	json     bool
	tids     []int
	demangle demangleFlag
}

func newStacksCmd(a *app) *cobra.Command {
	var c stacksCmd
	cmd := &cobra.Command{
		Use:   "stacks [options] {PID... | --all-threads}",
		Short: "print where the threads of a running process are",
		Long: `stacks prints the call stack of every thread of running processes, traced or not,
in the manner of gdb and eu-stack. Of a traced process it shows the functions
that the program itself has called.

A thread that is blocked is not stopped: the kernel tells its stack pointer and
program counter, which is enough for most stacks (mode partial). A thread that
runs is stopped while its registers and up to 256 KiB of its stack are read (mode
full); -v says for how long. --exact does that to blocked threads, too; a system
call that is interrupted so can end with EINTR.

The last line of a stack says why it ended: outermost (the thread's first
function), undefined:REG (a register is needed that is not known: --exact has it),
no-table (code without unwind tables), bad-cfa (tables and stack contradict each
other), depth, or gone (more stack than was read).`,
		Example: `  fentry stacks $(pidof nginx)         every thread of every nginx
  fentry stacks --all-threads          of all that is traced now
  fentry stacks --exact 4711           with all registers
  fentry stacks --tid 4712 4711        one thread
  fentry stacks --json 4711 | jq -r '.frames[0].function'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.all != (len(args) == 0) {
				return usagef(cmd, "a PID or --all-threads is needed, not both")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args) },
	}
	f := cmd.Flags()
	f.BoolVar(&c.all, "all-threads", false, "every thread of all programs that are traced now")
	f.BoolVar(&c.exact, "exact", false, "stop blocked threads, too, to have all their registers")
	f.BoolVar(&c.json, "json", false, "print one JSON object per thread")
	f.IntSliceVar(&c.tids, "tid", nil, "only the threads `TID`[,TID...]")
	c.demangle.add(cmd)
	return cmd
}

func (c *stacksCmd) run(a *app, cmd *cobra.Command, args []string) error {
	var pids []int
	for _, arg := range args {
		pid, err := strconv.Atoi(arg)
		if err != nil || pid <= 0 {
			return usagef(cmd, "%q is not a process id", arg)
		}
		pids = append(pids, pid)
	}
	if c.all {
		if pids = tracedProcesses(); len(pids) == 0 {
			return errors.New("no program is traced that this user may look at")
		}
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	seen := 0
	for _, pid := range pids {
		n, err := c.process(a, out, pid)
		seen += n
		if c.all && err != nil { // as a rule it has ended meanwhile
			a.notef("fentry: %v", stacksError(pid, err))
			continue
		}
		if err != nil {
			return out.close(stacksError(pid, err))
		}
	}
	if seen == 0 && len(c.tids) > 0 {
		err = errors.New("--tid: there is no such thread")
	}
	return out.close(err)
}

// stacksError says what is the matter with a process.
func stacksError(pid int, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("there is no process %d", pid)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("process %d: no permission to look at it (its user has, or root alone where kernel.yama.ptrace_scope is not 0)", pid)
	}
	return fmt.Errorf("process %d: %w", pid, err)
}

// process prints the threads of one process, and returns how many.
func (c *stacksCmd) process(a *app, w io.Writer, pid int) (n int, err error) {
	p, err := stacks.Open(pid, a.symbols())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	tids, err := p.Threads()
	if err != nil {
		return 0, err
	}
	for _, tid := range tids {
		if len(c.tids) > 0 && !slices.Contains(c.tids, tid) {
			continue
		}
		t, err := p.Thread(tid, c.exact)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return n, err
		}
		if n++; c.json {
			err = c.writeJSON(w, p, t)
		} else {
			if n == 1 {
				fmt.Fprintf(w, "process %d: %s\n", pid, safetext.Line(p.Exe))
			}
			err = c.writeText(w, p, t)
		}
		if err != nil {
			return n, err
		}
		if t.Stopped > 0 && a.verbose > 0 {
			a.notef("fentry: task %d: stopped for %v", tid, t.Stopped)
		}
	}
	return n, nil
}

// doing is what a thread is about.
func doing(t *stacks.Thread) string {
	switch {
	case t.Syscall != stacks.NoSyscall:
		return "in " + syscallName(t.Syscall)
	case t.Running:
		return "running"
	}
	return "blocked"
}

func syscallName(nr int) string { return syscalls.MachineOf(runtime.GOARCH).Name(uint64(nr)) }

func (c *stacksCmd) writeText(w io.Writer, p *stacks.Process, t *stacks.Thread) error {
	fmt.Fprintf(w, "task %d (%s): %s, %v\n", t.TID, safetext.Line(t.Name), doing(t), t.Mode)
	k := 0
	for _, f := range t.Frames {
		for _, n := range p.Names(f) {
			name := "??"
			switch {
			case f.Trampoline:
				name = "<signal handler called>"
			case n.Func != "":
				name = c.demangle.name(n.Func)
			}
			pc := fmt.Sprintf("0x%014x", f.PC)
			switch {
			case n.Inlined:
				name, pc = name+" (inlined)", ""
			case n.Func != "" && !n.Moved && !f.Trampoline:
				name = fmt.Sprintf("%s+%#x", name, n.Offset)
			}
			if n.Image != "" {
				name += " [" + path.Base(n.Image) + "]"
			}
			if n.Line.Line > 0 {
				name += " at " + n.Line.String()
			}
			fmt.Fprintf(w, "#%-3d %-16s %s\n", k, pc, safetext.Line(name))
			k++
		}
	}
	_, err := fmt.Fprintf(w, "     %s\n", t.End)
	return err
}

// stackLine is a thread in JSON.
type stackLine struct {
	PID     int          `json:"pid"`
	TID     int          `json:"tid"`
	Comm    string       `json:"comm"`
	Running bool         `json:"running"`
	Syscall string       `json:"syscall,omitempty"`
	Mode    string       `json:"mode"`
	Frames  []stackFrame `json:"frames"` // innermost first
	End     string       `json:"end"`
	Stopped int64        `json:"stopped_ns"`
}

// stackFrame is a function of a stack in JSON.
type stackFrame struct {
	PC       string `json:"pc"`
	Signal   bool   `json:"signal,omitempty"` // where a handler returns to
	Function string `json:"function,omitempty"`
	Offset   uint64 `json:"offset"`
	Image    string `json:"image,omitempty"`
	Source   string `json:"source,omitempty"`
	Inlined  bool   `json:"inlined,omitempty"`
	Moved    bool   `json:"moved,omitempty"`
}

func (c *stacksCmd) writeJSON(w io.Writer, p *stacks.Process, t *stacks.Thread) error {
	l := stackLine{PID: p.PID, TID: t.TID, Comm: t.Name, Running: t.Running, Mode: t.Mode.String(), End: t.End,
		Stopped: t.Stopped.Nanoseconds(), Frames: []stackFrame{}}
	if t.Syscall != stacks.NoSyscall {
		l.Syscall = syscallName(t.Syscall)
	}
	for _, f := range t.Frames {
		for _, n := range p.Names(f) {
			s := stackFrame{PC: fmt.Sprintf("%#x", f.PC), Offset: n.Offset, Image: n.Image, Inlined: n.Inlined, Moved: n.Moved,
				Signal: f.Trampoline}
			if n.Func != "" {
				s.Function = c.demangle.name(n.Func)
			}
			if n.Line.Line > 0 {
				s.Source = n.Line.String()
			}
			l.Frames = append(l.Frames, s)
		}
	}
	return json.NewEncoder(safetext.JSONWriter(w)).Encode(l)
}

// tracedProcesses are the processes that have a recorder's pool, or an events file of their own, as far as this user may
// look.
func tracedProcesses() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(path.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		maps, err := os.ReadFile(dir + "/maps")
		if err == nil && mapsTrace(maps) && !holdsPool(dir) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// mapsTrace tells whether a process has shared memory that a runtime writes to: lines of proc(5).
func mapsTrace(maps []byte) bool {
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if len(f) >= 6 && strings.HasPrefix(f[1], "rw-s") && (f[5] == "/memfd:fentry-pool" || path.Base(f[5]) == "events") {
			return true
		}
	}
	return false
}

// holdsPool tells whether a process is a recorder: it has the pool open at a certain descriptor.
func holdsPool(dir string) bool {
	const poolFD = 1000
	to, err := os.Readlink(fmt.Sprintf("%s/fd/%d", dir, poolFD))
	return err == nil && strings.HasPrefix(to, "/memfd:fentry-pool")
}
