package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
	"github.com/fentry-dev/fentry/tracefs"
)

type mountCmd struct {
	buffer  string
	library []string
	forTime time.Duration
	calls   bool
}

func newMountCmd(a *app) *cobra.Command {
	var c mountCmd
	cmd := &cobra.Command{
		Use:   "mount [flags] PID DIR",
		Short: "show a process as a tracefs",
		Long: `mount shows a process that runs with the files that the kernel has for its own
functions below /sys/kernel/tracing: set_ftrace_filter, current_tracer, trace,
trace_pipe and the rest, with their meaning; --syscalls adds events of system calls. PID
is a process's id, or its program's name. DIR is a directory; the file README in it says
what there is. Nothing is recorded until a tracer is chosen. The newest events are kept,
in memory.

mount runs until the directory is unmounted (umount DIR, fusermount3 -u DIR), the process
ends, or ^C; the process goes on as it was. Without root it needs the program
fusermount3. Only the user who mounts it can use the files.`,
		Example: `  fentry mount 1234 /mnt &
  echo 'parse_*' > /mnt/set_ftrace_filter
  echo function_graph > /mnt/current_tracer
  cat /mnt/trace_pipe
  echo syscalls:sys_enter_openat > /mnt/set_event   with --syscalls
  umount /mnt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef(cmd, "a process and a directory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(a, cmd, args[0], args[1]) },
	}
	f := cmd.Flags()
	f.StringVarP(&c.buffer, "buffer", "b", "4M", "keep events in `SIZE` of memory, with K, M or G")
	f.StringArrayVarP(&c.library, "library", "L", nil, "functions of loaded libraries, too, whose names match `PAT`: libz, "+
		"'libssl*', '*'; libraries are modules (repeatable)")
	f.Var((*durationFlag)(&c.forTime), "for", "end after `TIME`, such as 5s")
	f.BoolVar(&c.calls, "syscalls", false, "have events of system calls: events/syscalls and events/raw_syscalls")
	return cmd
}

// restPatience is how long readers of trace_pipe are waited for, when the process has ended, that do not come for the last.
const restPatience = time.Second

func (c *mountCmd) run(a *app, cmd *cobra.Command, process, dir string) error {
	buffer, err := parseSize(c.buffer)
	if err != nil {
		return usagef(cmd, "--buffer: %v", err)
	}
	pids, err := findProcesses([]string{process})
	if err != nil {
		return err
	}
	if len(pids) > 1 {
		return fmt.Errorf("%s: %d processes have that name: give the id of one of %s", process, len(pids),
			strings.Trim(fmt.Sprint(pids), "[]"))
	}
	if st, err := os.Stat(dir); err != nil {
		return pathError(err)
	} else if !st.IsDir() {
		return fmt.Errorf("%s: not a directory", dir)
	}
	work, err := os.MkdirTemp("", "fentry-mount-")
	if err != nil {
		return pathError(err)
	}
	defer os.RemoveAll(work)
	t := &mountTarget{pid: pids[0], dir: filepath.Join(work, "copy"), size: buffer}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pids[0]))
	t.program = strings.TrimSuffix(exe, " (deleted)")
	if err := os.Mkdir(t.dir, 0o700); err != nil {
		return pathError(err)
	}
	parallel.Waiters()
	var mounted *tracefs.Mounted
	var failed error
	res, err := fentry.Attach(context.Background(), pids, fentry.Options{
		Dir: filepath.Join(work, "trace"), Buffer: buffer, For: c.forTime, Hurry: true, Overhead: -1, NoSwitches: true, Symbols: a.symbols(),
		Libraries: c.library, Syscalls: c.calls, Info: trace.Info{Writer: "fentry " + version},
		Logf: func(format string, args ...any) { a.notef("fentry: "+format, args...) },
		Live: func(l *fentry.Live) {
			t.Live = l
			var target tracefs.Target = t
			if c.calls {
				target = syscallTarget{t}
			}
			mounted, failed = tracefs.Mount(dir, target, tracefs.Options{Name: "fentry", Console: func(text []byte) {
				_, _ = a.stderr.Write(text) // who does not read it does not want it
			}})
			if failed != nil {
				l.End()
				return
			}
			l.AtEnd(func() { mounted.Rest(restPatience) })
			a.notef("fentry: process %d is in %s", pids[0], dir)
			go func() {
				mounted.Wait()
				l.End()
			}()
		},
	})
	if mounted != nil {
		failed = errors.Join(failed, mounted.Unmount())
	}
	if err != nil {
		return pathError(err)
	}
	a.stays(&res.Result)
	return failed
}

// mountTarget is a recording as a tracefs needs it.
type mountTarget struct {
	*fentry.Live
	pid     int
	dir     string // for copies of the buffer
	size    int64  // of the buffer
	program string // its path: what is not in it is in a library
	mark    session.Mark
}

func (t *mountTarget) Functions() (all []tracefs.Function) {
	for _, f := range t.Live.Functions() {
		fn := tracefs.Function{Image: f.Image, ID: f.ID, Name: f.Name}
		if f.Path != t.program {
			fn.Module = filepath.Base(f.Path)
		}
		all = append(all, fn)
	}
	return all
}

func (t *mountTarget) Open(from uint64) (*trace.Trace, error) {
	tr, err := t.Live.OpenSince(t.dir, from)
	if errors.Is(err, session.ErrOver) {
		err = tracefs.ErrOver
	}
	return tr, err
}

func (t *mountTarget) Moved() bool {
	moved, err := t.Move(&t.mark)
	return moved || err != nil
}

func (t *mountTarget) Images() ([]trace.ImageID, error) { return t.Mapped(t.pid) }

func (t *mountTarget) Size() int64 { return t.size }

// syscallTarget is one whose system calls are recorded, too.
type syscallTarget struct{ *mountTarget }

func (t syscallTarget) Syscalls(on bool) error {
	line := "syscalls = 0"
	if on {
		line = "syscalls = 1"
	}
	_, err := t.Control(line)
	return err
}
