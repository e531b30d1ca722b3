//go:build linux

package tracefs

// readme is the file README: what there is, as the kernel's has it.
const readme = `tracing mini-HOWTO: fentry mount

A process that runs, with the files that the kernel has for its own functions.

# echo 0 > tracing_on : quick way to disable tracing
# echo 1 > tracing_on : quick way to re-enable tracing

 Important files:
  trace			- The contents of the buffer, as text
			  To clear the buffer write into this file: echo > trace
  trace_pipe		- A consuming read to see the contents of the buffer
  current_tracer	- function and latency tracers
  available_tracers	- list of configured tracers for current_tracer
  trace_clock		- change the clock used to order events
  trace_marker		- Writes into this file writes into the buffer
  trace_options		- Set format or modify how tracing happens
			  Disable an option by prefixing 'no' to the option name
  options/		- The same, a file for each: 0 or 1
  instances/		- Make sub-buffers with: mkdir instances/foo
			  Remove sub-buffer with rmdir
  per_cpu/		- The same files for each thread: threads stand where processors do
  saved_cmdlines	- Names of threads, by thread id

  available_filter_functions - list of functions that can be filtered on
  enabled_functions	- list of functions that are recorded now
  set_ftrace_filter	- echo function name in here to only trace these functions
	     accepts: func_full_name or glob-matching-pattern
	     modules: Can select a group via module
	      Format: :mod:<module-name>
	     example: echo :mod:libz.so.1 > set_ftrace_filter
	    triggers: a command to perform when function is hit
	      Format: <function>:<trigger>[:count]
	     trigger: traceon, traceoff
		      stacktrace
		      snapshot
		      dump
		      cpudump
		      enable_event:<system>:<event>
		      disable_event:<system>:<event>
	     The first one will disable tracing every time do_fault is hit
	     The second will disable tracing at most 3 times when do_trap is hit
	       echo do_fault:traceoff > set_ftrace_filter
	       echo do_trap:traceoff:3 > set_ftrace_filter
	     To remove trigger without count:
	       echo '!<function>:<trigger> > set_ftrace_filter
	     To remove trigger with a count:
	       echo '!<function>:<trigger>:0 > set_ftrace_filter
  set_ftrace_notrace	- echo function name in here to never trace.
	    accepts: func_full_name, *func_end, func_begin*, *func_middle*
	    modules: Can select a group via module command :mod:
	    Does not accept triggers
  set_ftrace_pid	- Write pid(s) to only function trace those pids
  set_ftrace_notrace_pid - Write pid(s) to not function trace those pids
  set_graph_function	- Trace the nested calls of a function (function_graph)
  set_graph_notrace	- Do not trace the nested calls of a function (function_graph)
  tracing_cpumask	- Limit which threads are recorded, in hex: threads stand where processors do
  function_profile_enabled - Count calls and their times, by function and thread
  trace_stat/function0	- What was counted in a thread: function1 is the next one
  max_graph_depth	- Trace a limited depth of nested calls (0 is unlimited)
  tracing_thresh	- Show calls that take at least so many microseconds (function_graph)
  available_events	- list of events, if system calls are recorded (--syscalls)
  set_event		- which events are recorded: echo syscalls:sys_enter_read >> set_event
			  '!' in front switches one off, and '>' all that were on
  set_event_pid		- Write pid(s) to only record events of those pids
  set_event_notrace_pid	- Write pid(s) to not record events of those pids
  events/		- Directory of all trace event subsystems:
      enable		- Write 0/1 to enable/disable tracing of all events
  events/<system>/	- Directory of all trace events for <system>:
      enable		- Write 0/1 to enable/disable tracing of all <system>
      filter		- If set, only events passing filter are traced
  events/<system>/<event>/ - Directory containing control files for <event>:
      enable		- Write 0/1 to enable/disable tracing of <event>
      filter		- If set, only events passing filter are traced
      trigger		- What happens when the event does, recorded or not
	      Format: <trigger>[:count][if <filter>]
	     trigger: traceon, traceoff
		      snapshot
		      stacktrace
		      enable_event:<system>:<event>
		      disable_event:<system>:<event>
	     example: echo 'traceoff:1 if ret < 0' > events/syscalls/sys_exit_read/trigger
      format		- What an event looks like
      id		- Its number
  snapshot		- Like 'trace' but shows the content of the static
			  snapshot buffer. Read the contents for more
			  information
`
