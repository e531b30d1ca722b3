package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fentry-dev/fentry/session"
)

func newControlCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "control PID COMMAND",
		Short: "change what is recorded of a process while it runs",
		Long: `control tells the recorder of a process what to record from now on, of it and of all
processes that are recorded with it. PID is the process that record has started or was
attached to, and COMMAND is one of these, with the names that tracefs has for them:

  set_ftrace_filter = PAT...    record only functions whose names match; without PAT: all
  set_ftrace_filter += PAT...   these, too
  set_ftrace_filter -= PAT...   these no more
  set_ftrace_notrace = PAT...   leave these out of it; += and -= likewise
  set_graph_function = PAT...   record only what is called inside of these (record -G);
                                += and -= likewise; without PAT: everything
  trigger = FUNC@ACTION...      do something at calls of functions (record --trigger),
                                besides what the recording began with; += and -= likewise
  arguments = SPEC...           record arguments (record -A); += and -= likewise
  results = SPEC...             record results (record -R); += and -= likewise
  max_graph_depth = N           so many levels of calls (record -D); 0: all
  tracing_thresh = TIME         calls that take so long (record -t); 0: all
  tracing_on = 0                record nothing; 1: go on
  syscalls = 0                  leave system calls out (record --syscalls); 1: go on
  current_tracer = nop          record no function; function: that they are called, without
                                their ends, so each call takes no time and has no calls
                                inside; function_graph: all
  settle                        have functions that are off run as if they were not traced,
                                at once; else it is done when nothing was set for a second
  dump [TIME]                   write what a flight recorder has, or the last TIME of it
  detach                        end the recording; the program goes on

The name alone of a setting prints what it is set to, and status prints all of them.
Several settings are separated by a semicolon and a blank: all of them are made, or
none, and an error says which part was not understood. Patterns are those of record -F,
with blanks or commas in between. On x86-64, functions that record -F and -N have left
out are added when they are named, by += or by = or for something that is done at their
calls, and so are those of any library that is loaded if it is named in front:
libz:inflate*. They need ptrace for some milliseconds, so neither a debugger nor strace
may be at work, nor record --no-ptrace; children have them, too, and programs that are
executed later get them some milliseconds after they have begun, a library that is
loaded again up to a quarter of a second later, which is said. Functions that begin
with a call, and those of Go programs, cannot be added: record --available prepares
them. In set_ftrace_filter, PAT:COMMAND:COUNT is a trigger as ftrace has it, and
!PAT:COMMAND takes one away. Functions with triggers have them whether they are recorded
or not, and how often something was done is not forgotten when other triggers change.

Nobody is stopped, but for some milliseconds when functions are added, get their code
back or are traced again (settle), where libraries that are patched copies (record -L) are loaded, and
where trigger, arguments, results, current_tracer,
set_graph_function, max_graph_depth and tracing_thresh change, which need a recording that
began with the tracer function_graph, or with record -T function,function_graph, on
x86-64; the last three need a clock, too. Threads that are always in the tracer
come out of it then, and calls that they, and children that they fork, begin in these
milliseconds are not recorded;
where one waits in it for five seconds, the set is refused. A function in the middle of whose first
instructions a thread is cannot be recorded yet: the answer names it, and it is tried again
until it is. Of several specs for a function's arguments the last
one counts, also before those that the recording began with, and so of its results. Calls
that are open when set_graph_function changes count as outside. Only the recorder's user and root may
use this: the recorder listens at PID.sock in $XDG_RUNTIME_DIR/fentry, or in
/tmp/fentry-UID. Scripts that know perf can use record --control.`,
		Example: `  fentry control 1234 'set_ftrace_filter = parse_* read_*'
  fentry control 1234 'set_graph_function = commit; tracing_thresh = 10us'
  fentry control 1234 'set_ftrace_filter += parse_error:traceoff:1'
  fentry control 1234 tracing_on = 0
  fentry control 1234 status`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef(cmd, "a process and a command")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return runControl(a, cmd, args[0], strings.Join(args[1:], " "))
		},
	}
}

func newDetachCmd(a *app) *cobra.Command {
	var unload bool
	cmd := &cobra.Command{
		Use:   "detach [--unload] PID",
		Short: "end the recording of a process",
		Long: `detach ends the recording of a process, as ^C does where it was started, and
returns when the recorder has been told. A process that was attached to (record -p) is put
back to what it was, and goes on. The tracer's code is taken out of it, too, once nobody
can come there any more; where a thread stays in it, so does the code, switched off. A program
that record has started is left in the same way, and so is one that a process which was
attached to has executed, but for memory that they were given when they began. They keep the
tracer, switched off, where libraries are traced, too. With --unload, detach waits for all
that, and fails with the reason if the tracer stays. If the recorder was killed, detach takes
the tracer out itself, of a process that was attached to.`,
		Example: `  fentry detach 1234
  fentry detach --unload 1234`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "one process")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if unload {
				return runControl(a, cmd, args[0], "detach unload")
			}
			return runControl(a, cmd, args[0], "detach")
		},
	}
	cmd.Flags().BoolVar(&unload, "unload", false, "wait until the tracer's code has been taken out, or say why it stays")
	return cmd
}

func newDumpCmd(a *app) *cobra.Command {
	var last durationFlag
	cmd := &cobra.Command{
		Use:   "dump [--last TIME] PID",
		Short: "write what a flight recorder has, while the program goes on",
		Long: `dump has the recorder of a process write the newest events, which it keeps in memory
(record --flight), to a trace directory, and prints its name. The program goes on, and so
does the recording. info says of how much of the time before nothing is missing.`,
		Example: `  fentry record --flight 64M ./server &
  fentry dump --last 200ms 1234         # then: fentry replay fentry.data.1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "one process")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			command := "dump"
			if last > 0 {
				command += " " + last.String()
			}
			return runControl(a, cmd, args[0], command)
		},
	}
	cmd.Flags().Var(&last, "last", "write the last `TIME`, such as 200ms; default: all that there is")
	return cmd
}

// release takes a tracer out whose recorder was killed.
func release(pid int) error {
	err := session.Release(pid)
	if errors.Is(err, session.ErrNoTracer) {
		return session.ErrNotRecorded
	}
	return err
}

// runControl sends a command, and says where in it an error is.
func runControl(a *app, cmd *cobra.Command, process, command string) error {
	pid, err := strconv.Atoi(process)
	if err != nil || pid <= 0 {
		return usagef(cmd, "%s is no process id", process)
	}
	answer, err := session.Control(pid, command)
	if errors.Is(err, session.ErrNotRecorded) && strings.HasPrefix(command, "detach") {
		err = release(pid)
	}
	var wrong *session.ControlError
	switch {
	case !errors.As(err, &wrong):
	case wrong.Column == 0: // the command is right
		return fmt.Errorf("%s: %s", command, wrong.Why)
	default:
		return fmt.Errorf("%s: column %d: %s", command, wrong.Column, wrong.Why)
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	if answer == "" {
		return nil
	}
	out, err := a.open()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, printable(answer))
	return out.close(err)
}
