// Package spec is the one table the trace format is written down in.
//
// Three files are made from it by trace/internal/gen (run "go generate ./trace"):
// the constants of package trace, the header the runtime's C and assembly
// include, and the page a third party writes a reader from. A test in package
// trace compares all three with the table, so that what the runtime writes,
// what the readers expect and what the page says cannot drift apart.
package spec

// A Field is one field of a fixed-layout structure, little-endian.
type Field struct {
	Name string // C and Go name, in upper case with underscores
	Off  int    // byte offset in the structure
	Type string // "u16", "u32", "u64" or "char[n]"
	Unit string // unit of the value, "" when it is a plain number
	Doc  string // what it holds, one or two sentences
}

// A Value is a named number: a kind, a state, a flag, a reserved id.
type Value struct {
	Name string
	Val  uint64
	Doc  string
}

// A Reserved is a reserved id and the payload words that follow its event word.
type Reserved struct {
	Name    string
	Code    uint32 // added to ReservedBase
	Payload []Field
	Doc     string
}

// Sizes and magic numbers.
const (
	FileMagic    = "FENTRYT1"
	Version      = 1
	HeaderSize   = 4096  // of a file without pool states
	ChunkSize    = 65536 // default size of a chunk with its header
	ChunkMagic   = 0x4b435446
	ChunkHeader  = 128 // bytes
	ReservedBase = 0x7fff0000
	ReservedLen  = 256 // ids from ReservedBase that may ever be reserved events
	StatesOff    = 256 // chunk states in the header of a pool
	IDShift      = 32
	ExitBit      = 63
)

// Header is the header page of a trace file or a shared pool.
var Header = []Field{
	{"MAGIC", 0, "char[8]", "", `the bytes "FENTRYT1"`},
	{"VERSION", 8, "u32", "", "version of this format, 1; a reader refuses any other"},
	{"HEADER_SIZE", 12, "u32", "bytes", "where the first chunk starts: 4096, or more where chunk states need it; a multiple of 4096"},
	{"CHUNK_SIZE", 16, "u32", "bytes", "size of a chunk with its header, a power of two between 4096 and 16 MiB; 65536 unless chosen otherwise"},
	{"CHUNKS", 20, "u32", "", "chunks in the pool; 0: a file that grows"},
	{"POLICY", 24, "u32", "", "what happens when no chunk is free, see Policies"},
	{"RECORDER", 28, "u32", "", "process id of the recorder; 0: the program writes its trace itself"},
	{"NEXT", 32, "u64", "chunks", "growing file: number of the first chunk slot never used, advanced atomically"},
	{"FREED", 40, "u32", "", "futex word, bumped when chunks become free"},
	{"FILLED", 44, "u32", "", "futex word, bumped when a chunk becomes full"},
	{"HEARTBEAT", 48, "u32", "", "bumped by a recorder that is alive"},
	{"CLOSED", 52, "u32", "", "1: writers stop tracing"},
	{"WAITERS", 56, "u32", "", "tasks that wait for a free chunk"},
	{"LEADER", 60, "u32", "", "process id of the first process traced"},
	{"LEADER_START", 64, "u64", "clock ticks", "start time of that process, field 22 of /proc/PID/stat"},
	{"COUNTER", 72, "u64", "ticks", "timestamp counter when the header was written; 0: not known to who wrote it, the program runs on an emulated machine"},
	{"MONOTONIC", 80, "u64", "ns", "CLOCK_MONOTONIC at the same moment"},
	{"REALTIME", 88, "u64", "ns", "CLOCK_REALTIME at the same moment"},
	{"COUNTER_HZ", 96, "u64", "Hz", "frequency of the counter if it is known, else 0; a program that knows it puts it there"},
	{"LOST", 104, "u64", "events", "events lost by tasks that never got a chunk"},
	{"LAYOUT", 112, "u32", "", "how chunks lie behind the header, see Layouts"},
}

// Chunk is the header of a chunk.
var Chunk = []Field{
	{"MAGIC", 0, "u32", "", `0x4b435446, the bytes "FTCK"; written last, so that a chunk that has it has a whole header`},
	{"KIND", 4, "u16", "", "what the chunk holds, see Chunk kinds"},
	{"FLAGS", 6, "u16", "", "reserved, 0"},
	{"SIZE", 8, "u32", "bytes", "size as stored, with this header, a multiple of 8; 0: not sealed, the chunk takes its whole slot and its contents end at the last non-zero word"},
	{"PID", 12, "u32", "", "process id of the task"},
	{"TID", 16, "u32", "", "thread id of the task"},
	{"NUMBER", 20, "u32", "", "number of the chunk among those of its task and kind, from 0; a gap means that chunks between are lost"},
	{"COUNTER", 24, "u64", "ticks", "full timestamp counter when the chunk was begun; gives the high half for its first events"},
	{"MONOTONIC", 32, "u64", "ns", "CLOCK_MONOTONIC at the same moment, read right after the counter; 0: not read"},
	{"IMAGE", 40, "u64", "", "image id: which program image the ids of the events belong to"},
	{"KEY", 48, "u64", "ticks", "task key: the counter when the task registered; tells tasks apart that had the same thread id one after another"},
	{"LOST", 56, "u64", "events", "events lost by this task so far"},
	{"COMM", 64, "char[16]", "", "name of the thread, NUL-padded"},
	{"PARENT_PID", 80, "u32", "", "process id of the task this one was forked from; 0: not forked"},
	{"PARENT_TID", 84, "u32", "", "its thread id"},
}

// Kinds are the kinds of chunk.
var Kinds = []Value{
	{"EVENTS", 1, "event words"},
	{"IMAGE", 2, "what the program image is, `key=value` strings"},
	{"PROFILE", 3, "counts and times a function, no stream of events"},
}

// Policies say what a writer does when no chunk is free.
var Policies = []Value{
	{"BLOCK", 0, "the task waits for the recorder"},
	{"DROP", 1, "the task goes on, its events are lost and counted"},
	{"OVERWRITE", 2, "the task's oldest chunk is used again: the trace holds the newest events"},
}

// States are the states of the chunks of a pool.
var States = []Value{
	{"FREE", 0, "nobody's; its contents mean nothing"},
	{"OWNED", 1, "a task writes events to it"},
	{"FULL", 2, "waits for the recorder"},
	{"WRITING", 3, "the recorder is writing it to disk"},
}

// Layouts say how chunks lie behind the header.
var Layouts = []Value{
	{"SLOTS", 0, "every chunk begins at a multiple of the chunk size behind the header, whatever its stored size is; a slot without the chunk magic is unused. Pools, and files that programs write themselves"},
	{"PACKED", 1, "every chunk begins where the one before it ends; every chunk is sealed. Files a recorder writes"},
}

// Events are the reserved ids.
var Events = []Reserved{
	{"SYNC", 0, []Field{{"COUNTER", 0, "u64", "ticks", "the full counter"}},
		"Gives the high half of the counter. Written before the first event whose high half is not that of the event before it (or of the chunk header)."},
	{"LOST", 1, []Field{{"COUNT", 0, "u64", "events", "how many"}},
		"Events of this task were lost here."},
	{"RESYNC", 2, []Field{{"COUNT", 0, "u64", "frames", "how many"}},
		"The innermost open frames of the current stack ended without an exit of their own: longjmp, an exception. A frame closed so can still exit later (a coroutine was left and entered again)."},
	{"STACK", 3, []Field{{"STACK", 0, "u64", "", "number of the stack, 0 is the one the task began on"}},
		"The task runs on another stack from here on: a coroutine, a signal handler on a stack of its own."},
	{"FORK", 4, []Field{{"PARENT", 0, "u64", "", "process id << 32 | thread id of the parent"}},
		"First event of a forked child: the frames that the parent had open are open here too."},
	{"START", 5, nil,
		"A program image starts in this task, which is the first one of the image."},
	{"COMM", 6, []Field{{"NAME", 0, "char[16]", "", "the name, NUL-padded"}},
		"The thread has a new name."},
	{"THREAD_END", 7, nil,
		"The thread ends; no event of it follows."},
	{"MARK", 8, []Field{{"VALUE", 0, "u64", "", "the user's number"}},
		"A mark set by the program."},
}

// ImageKeys are the keys of an image chunk.
var ImageKeys = []Value{
	{"path", 0, "the program as it was patched or started"},
	{"build-id", 0, "GNU build id in lower-case hex digits, empty when there is none"},
	{"bias", 0, "load address minus link address, hex with 0x"},
	{"exe", 0, "target of /proc/self/exe"},
	{"cmdline", 0, "/proc/self/cmdline with each NUL replaced by the byte 0x1f"},
	{"nsites", 0, "number of ids, decimal: ids are 1 to this"},
	{"mode", 0, "tracer: function, function_graph or profile"},
	{"ids", 0, "how functions are numbered. Absent: the position in the program's table of sites, from 1. `offset/4`: the program was linked with the tracer, and an id is (A - B) / 4 + 1, rounded down, where A is the return address of the call of mcount or `__fentry__` minus 5, and B the address of the ELF header in memory"},
}

// A Member is a member of info.json.
type Member struct {
	Name string // members of members with a dot, [] for those of arrays
	Type string // JSON type
	Doc  string
}

// Info are the members of info.json.
var Info = []Member{
	{"version", "number", "version of this format, 1; a reader refuses any other"},
	{"writer", "string", "program that recorded the trace, with its version"},
	{"command", "array", "argument vector of the program"},
	{"cwd", "string", "its working directory"},
	{"pid", "number", "its process id"},
	{"start", "string", "when it was started, RFC 3339"},
	{"duration_ns", "number", "how long it ran, ns"},
	{"exit_status", "number", "its exit status; -1: it still runs, or a signal ended it"},
	{"signal", "number", "number of the signal that ended it; 0: none"},
	{"tracer", "string", "function, function_graph or profile"},
	{"options", "array", "the recorder's options as the user gave them"},
	{"host", "string", "name of the host"},
	{"machine", "string", "as uname -m"},
	{"cpu", "string", "model name of the processor"},
	{"cpus", "number", "number of processors"},
	{"kernel", "string", "as uname -r"},
	{"clock", "object", "ties the counter to CLOCK_MONOTONIC"},
	{"clock.hz", "number", "frequency of the counter; 0: not known"},
	{"clock.pairs", "array", "both clocks at moments as far apart as possible"},
	{"clock.pairs[].counter", "number", "ticks, up to 64 bits"},
	{"clock.pairs[].monotonic_ns", "number", "CLOCK_MONOTONIC in ns"},
	{"images", "array", "program images"},
	{"images[].id", "string", "image id, 16 hex digits"},
	{"images[].path", "string", "as path in an image chunk"},
	{"images[].build_id", "string", "as build-id in an image chunk"},
	{"images[].machine", "string", "as uname -m"},
	{"images[].sites", "number", "number of ids"},
	{"images[].bias", "number", "load address minus link address"},
	{"images[].exe", "string", "as exe in an image chunk"},
	{"images[].command", "array", "as cmdline in an image chunk"},
	{"images[].mode", "string", "as mode in an image chunk"},
	{"images[].ids", "string", "as ids in an image chunk"},
	{"totals", "object", "what was recorded"},
	{"totals.events", "number", "events written"},
	{"totals.chunks", "number", "chunks written"},
	{"totals.bytes", "number", "size of events"},
	{"totals.processes", "number", "processes seen"},
	{"totals.tasks", "number", "threads seen"},
	{"lost", "number", "events lost, for every reason"},
}

// SymKeys are the keys in the first lines of a .sym file.
var SymKeys = []Value{
	{"path", 0, "the image's path when it was recorded"},
	{"build-id", 0, "its build id in hex digits, empty when there is none"},
	{"image", 0, "its image id, 16 hex digits: the file's name"},
	{"machine", 0, "the machine, as in EM_X86_64 in lower case: x86_64"},
	{"entry", 0, "its entry point, hex"},
}

// Profile is one entry of a profile chunk.
var Profile = []Field{
	{"CALLS", 0, "u64", "", "calls"},
	{"TOTAL", 8, "u64", "ticks", "time from entry to exit, recursive calls counted once in the outermost"},
	{"SELF", 16, "u64", "ticks", "time in the function itself"},
	{"MAX", 24, "u64", "ticks", "longest call"},
}

// ProfileEntry is the size of one entry of a profile chunk in bytes.
const ProfileEntry = 32
