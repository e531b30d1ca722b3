package spec

// The text in a trace: image chunks, .sym files, info.json.

// ImageKeys are the keys of an image chunk.
var ImageKeys = []Value{
	{"path", 0, "the image as it was patched or started"},
	{"build-id", 0, "GNU build-id in lower-case hex digits, or empty"},
	{"bias", 0, "load address minus link address, hex with 0x"},
	{"machine", 0, "the image's, which numbers system calls: the end of its EM_ constant in lower case, such as x86_64"},
	{"exe", 0, "target of /proc/self/exe"},
	{"file", 0, "file that a shared object was loaded from, as in /proc/self/maps; else absent"},
	{"home", 0, "image id, hex: the image has joined the one that the process began to be traced with. Then there are " +
		"no `cmdline` and `ppid`, as the process has not begun to run a program"},
	{"cmdline", 0, "/proc/self/cmdline with each NUL replaced by the byte 0x1f: the arguments of the program that the " +
		"process `PID` began to run at `COUNTER`"},
	{"ppid", 0, "process id of the parent of the process `PID` at this time, decimal; 0 if it is in another PID " +
		"namespace"},
	{"nsites", 0, "number of ids, decimal: ids are 1 to this"},
	{"mode", 0, "tracer: " + or(Tracers)},
	{"clock", 0, "`none`: counters in events are sequence numbers, 8 apart; a chunk begins at the processor's counter, or " +
		"behind the task's chunk before. Else absent"},
	{"ids", 0, "how functions are numbered. If absent, by their position in the program's table of sites, from 1. " +
		"`offset/4`: the program was linked with the tracer, and an id is (A - B) / 4 + 1, rounded down, where A is " +
		"the return address of the call of mcount or `__fentry__` minus 5, and B the address of the ELF header in memory"},
	{"stacks", 0, "`goroutines`: the program is Go's. Its calls are on stacks of goroutines, which go from thread to " +
		"thread, so that a call can end in another task than it began. Else absent"},
	{"park", 0, "of a Go program: the id of runtime.gopark, in whose calls goroutines wait to be made ready, and to run. " +
		"Absent if it is not traced"},
	{"ready", 0, "of a Go program: the id of runtime.ready, which makes goroutines ready to run that wait. Absent if it is not " +
		"traced"},
	{"plain", 0, "`1`: functions that no compiler has prepared for tracing are among those with ids. Else absent"},
}

// SymKeys are the keys in the first lines of a .sym file.
var SymKeys = []Value{
	{"path", 0, "the image's path when it was recorded"},
	{"build-id", 0, "its build-id in hex digits, or empty"},
	{"image", 0, "its image id, 16 hex digits: the file's name"},
	{"machine", 0, "the machine: the end of its EM_ constant in lower case, such as x86_64"},
	{"entry", 0, "its entry point, hex"},
	{"module", 0, "of a Go program: the path of its main module; absent if it has none"},
	{"go", 0, "of a Go program: the version of Go that has linked it; with ` described` behind it, one that was not tried, of " +
		"whose runtime is known what the program's debug information says; with ` derived`, what its code says"},
}

// A Member is a member of info.json.
type Member struct {
	Name string // a member of a member after a dot; [] for elements of an array
	Type string // JSON type
	Doc  string
}

// Info are the members of info.json.
var Info = []Member{
	{"version", "number", "version of this format, 2; a reader refuses any other"},
	{"writer", "string", "program that recorded the trace, with its version"},
	{"command", "array", "argument vector of the program"},
	{"cwd", "string", "its working directory"},
	{"pid", "number", "its process id"},
	{"start", "string", "when it was started, RFC 3339"},
	{"duration_ns", "number", "how long it ran, ns"},
	{"exit_status", "number", "its exit status; -1 if it is still running or was ended by a signal"},
	{"signal", "number", "number of the signal that ended it, 0 if none"},
	{"killed", "boolean", "the recorder was killed; the trace has what was recorded until then"},
	{"tracer", "string", or(Tracers)},
	{"options", "array", "the recorder's options as the user gave them"},
	{"host", "string", "name of the host"},
	{"machine", "string", "as uname -m"},
	{"cpu", "string", "model name of the processor"},
	{"cpus", "number", "number of processors"},
	{"kernel", "string", "as uname -r"},
	{"clock", "object", "ties the counter to CLOCK_MONOTONIC"},
	{"clock.hz", "number", "frequency of the counter, 0 if not known"},
	{"clock.pairs", "array", "pairs of both clocks, read as far apart as possible"},
	{"clock.pairs[].counter", "number", "ticks, up to 64 bits"},
	{"clock.pairs[].monotonic_ns", "number", "CLOCK_MONOTONIC in ns"},
	{"images", "array", "program images"},
	{"images[].id", "string", "image id, 16 hex digits"},
	{"images[].path", "string", "as path in an image chunk"},
	{"images[].build_id", "string", "as build-id in an image chunk"},
	{"images[].machine", "string", "as uname -m"},
	{"images[].sites", "number", "number of ids"},
	{"images[].stacks", "string", "goroutines: calls of its functions are goroutines', each of which has a stack; absent: " +
		"they are threads' and coroutines'"},
	{"images[].park", "number", "as park in an image chunk"},
	{"images[].ready", "number", "as ready in an image chunk"},
	{"images[].bias", "number", "load address minus link address"},
	{"images[].exe", "string", "as exe in an image chunk"},
	{"images[].file", "string", "as file in an image chunk"},
	{"images[].command", "array", "as cmdline in an image chunk"},
	{"images[].parent", "number", "as ppid in an image chunk"},
	{"images[].mode", "string", "as mode in an image chunk"},
	{"images[].clock", "string", "as clock in an image chunk"},
	{"images[].ids", "string", "as ids in an image chunk"},
	{"images[].plain", "boolean", "whether plain is 1 in an image chunk"},
	{"processes", "array", "processes that the recorder saw, by the time it first did; not every one that is in the trace"},
	{"processes[].pid", "number", "process id"},
	{"processes[].parent", "number", "process id of its parent at that time, 0 if not known"},
	{"processes[].seen_monotonic_ns", "number", "CLOCK_MONOTONIC when it was first seen"},
	{"processes[].titles", "array", "what it called itself, other than its arguments, as seen in /proc/PID/cmdline now " +
		"and then; oldest first"},
	{"processes[].titles[].monotonic_ns", "number", "CLOCK_MONOTONIC when it was seen"},
	{"processes[].titles[].text", "string", "NUL bytes are blanks"},
	{"processes[].ended_monotonic_ns", "number", "CLOCK_MONOTONIC when it was seen to have ended"},
	{"processes[].exit_status", "number", "its exit status, -1 if a signal ended it; means something only with a source"},
	{"processes[].signal", "number", "number of the signal that ended it, 0 if none"},
	{"processes[].exit_source", "string", "how the status is known: wait, the recorder was its parent; pidfd, " +
		"PIDFD_GET_INFO; proc, /proc/PID/stat before its parent waited for it. Absent: it is not known"},
	{"tasks", "array", "tasks that the recorder saw, by when it saw their names, whether they recorded anything or not"},
	{"tasks[].tid", "number", "thread id"},
	{"tasks[].pid", "number", "process id"},
	{"tasks[].start_ticks", "number", "when it began, clock ticks after boot, field 22 of /proc/PID/stat"},
	{"tasks[].name", "string", "the last name that was seen"},
	{"tasks[].seen_monotonic_ns", "number", "CLOCK_MONOTONIC when the task was first seen with it"},
	{"totals", "object", "what was recorded"},
	{"totals.events", "number", "events written"},
	{"totals.chunks", "number", "chunks written"},
	{"totals.bytes", "number", "size of events"},
	{"totals.processes", "number", "processes seen"},
	{"totals.tasks", "number", "threads seen"},
	{"lost", "number", "events lost, for whatever reason"},
	{"dump", "object", "a flight recorder wrote the trace while the program ran; absent: it was written at the end"},
	{"dump.cause", "string", "what asked for it: `fentry dump`, `SIGUSR2`, `a call of FUNCTION`, or what a program that records has said"},
	{"dump.asked_ns", "number", "how much of the time before was asked for; absent: all that there was"},
	{"dump.whole_ns", "number", "how much of the time before has all events; absent: all since the beginning"},
	{"samples", "object", "how stacks were taken on a timer; absent: none were"},
	{"samples.every", "number", "ns that a thread ran between two"},
	{"samples.source", "string", "perf: the recorder had the kernel copy them; absent: at events of the threads"},
	{"samples.reason", "string", "why so"},
	{"samples.taken", "number", "how many the recorder took"},
	{"samples.lost", "number", "how many the kernel or the recorder had no room for"},
	{"switches", "object", "how it is known when threads were off a processor; absent: the recorder did not ask"},
	{"switches.source", "string", "perf: the kernel's record of task switches (PERF_RECORD_SWITCH); absent: it is not known"},
	{"switches.reason", "string", "why it is not known"},
	{"switches.lost", "number", "records that the kernel had no room for; in that time nothing is known of any thread"},
}
