package spec

// The files of a trace: sizes, the header page, chunks and what is in them. Records
// are in records.go, texts in texts.go.

// Sizes and magic numbers.
const (
	FileMagic   = "FENTRYT1"
	Version     = 2
	HeaderSize  = 4096  // of a file without pool states
	ChunkSize   = 65536 // default size of a chunk with its header
	ChunkMagic  = 0x4b435446
	ChunkHeader = 128 // bytes
	MaxKind     = 255
	StatesOff   = 256 // chunk states in the header of a pool
)

// Header is the header page of a trace file or a shared pool.
var Header = []Field{
	{"MAGIC", 0, "char[8]", "", `the bytes "FENTRYT1"`},
	{"VERSION", 8, "u32", "", "version of this format, 2; a reader refuses any other"},
	{"HEADER_SIZE", 12, "u32", "bytes", "offset of the first chunk: 4096, or more if chunk states need it; a " +
		"multiple of 4096"},
	{"CHUNK_SIZE", 16, "u32", "bytes", "size of a chunk with its header, a power of two between 4096 and 16 MiB; " +
		"65536 unless chosen otherwise"},
	{"CHUNKS", 20, "u32", "", "chunks in the pool; 0: a file that grows"},
	{"POLICY", 24, "u32", "", "what happens when no chunk is free, see Policies"},
	{"RECORDER", 28, "u32", "", "process id of the recorder; 0: the program writes its trace itself"},
	{"NEXT", 32, "u64", "chunks", "growing file: number of the first chunk slot never used, advanced atomically"},
	{"FREED", 40, "u32", "", "futex word, bumped when chunks become free"},
	{"FILLED", 44, "u32", "", "futex word, bumped when a chunk becomes full, and when a process begins its first one"},
	{"HEARTBEAT", 48, "u32", "", "bumped by a recorder that is alive"},
	{"CLOSED", 52, "u32", "", "1: writers stop tracing"},
	{"WAITERS", 56, "u32", "", "tasks that wait for a free chunk"},
	{"LEADER", 60, "u32", "", "process id of the first process traced"},
	{"LEADER_START", 64, "u64", "clock ticks", "start time of that process, field 22 of /proc/PID/stat"},
	{"COUNTER", 72, "u64", "ticks", "timestamp counter when the header was written; 0: not known to the writer, " +
		"because the program runs on an emulated machine"},
	{"MONOTONIC", 80, "u64", "ns", "CLOCK_MONOTONIC at the same moment"},
	{"REALTIME", 88, "u64", "ns", "CLOCK_REALTIME at the same moment"},
	{"COUNTER_HZ", 96, "u64", "Hz", "frequency of the counter, 0 if not known; a program that knows it stores it here"},
	{"LOST", 104, "u64", "events", "events lost that no chunk tells of: of tasks that got no chunk afterwards, or in " +
		"chunks that the recorder could not write"},
	{"LAYOUT", 112, "u32", "", "how chunks follow the header, see Layouts"},
	{"RANGES", 116, "u32", "bytes", "offset of the table of id ranges, a multiple of 8 inside the header; 0 if " +
		"there is none"},
	{"RANGES_ROOM", 120, "u32", "", "capacity of that table, in entries"},
	{"SMALL_CHUNKS", 124, "u32", "", "small chunks of a pool, after those of `CHUNK_SIZE`; 0: none"},
	{"SMALL_SIZE", 128, "u32", "bytes", "their size, a power of two of at least 4096"},
	{"SMALL_FREE", 132, "u32", "bytes", "offset in the header of a bitmap, one bit for each small chunk, 64 to a " +
		"word; set: probably free"},
	{"SCARCE", 136, "u32", "", "if not 0, tasks own most chunks of `CHUNK_SIZE` and have to take small ones"},
	{"REQUEST", 140, "u32", "", "futex word, of a pool, or of a file with a `SERVER`: state of a request to the recorder; bits 2 and up: " +
		"number of the request, one more each time the slot is taken"},
	{"REQUEST_KIND", 144, "u32", "", "what is requested, see below"},
	{"REQUEST_PID", 148, "u32", "", "process id of the requesting program"},
	{"REQUEST_ARGUMENT", 152, "u64", "", "depends on the kind"},
	{"REQUEST_ANSWER", 160, "u32", "", "the recorder's answer, see below"},
	{"UNCOUNTED", 164, "u32", "", "if not 0, events were lost whose number is not known: how many tasks, processes " +
		"or recorders have not counted theirs, see Losses"},
	{"UNCOUNTED_FROM", 168, "u64", "ticks", "counter before the first of them"},
	{"UNCOUNTED_TO", 176, "u64", "ticks", "counter after the last of them; 0: not known, the end of the program"},
	{"OVERWRITTEN", 184, "u64", "events", "events given up for newer ones (policy `OVERWRITE`)"},
	{"SWITCHED_OFF", 192, "u32", "bytes", "pool only: offset in the header of the list of functions that are switched " +
		"off, a multiple of 8; 0: there is none"},
	{"SWITCHED_OFF_ROOM", 196, "u32", "", "capacity of that list"},
	{"SWITCHED_OFF_COUNT", 200, "u32", "", "how many it has; the recorder adds to it, and takes nothing away"},
	{"SERVER", 204, "u32", "", "of a file that programs write to themselves: process id of the recorder that answers their " +
		"requests; 0: nobody does"},
	{"RECORDER_NS", 208, "u64", "", "PID namespace that the recorder's process id is of, as the number in " +
		"/proc/PID/ns/pid; 0: not known. Elsewhere only `HEARTBEAT` tells whether it lives"},
	{"SILENT", 216, "u32", "", "`HEARTBEAT` when a request was given up, plus 1; as long as that does not change, requests are " +
		"given up soon"},
	{"UNFOLLOWED", 220, "u32", "", "requests about programs to be executed that the recorder did not answer in time, or that a program did not make, because it filters its system calls: these, or what they execute in turn, are not traced"},
	{"REQUEST_NS", 224, "u64", "", "PID namespace that `REQUEST_PID` is of, as `RECORDER_NS`; 0: not known"},
	{"UNLOADED", 232, "u32", "", "files that a program's dynamic loader has opened and about which the program did not ask the recorder, because it filters its system calls: libraries among them are not traced"},
}

// Chunk is the header of a chunk.
var Chunk = []Field{
	{"MAGIC", 0, "u32", "", `0x4b435446, the bytes "FTCK"; written last, so a chunk that has it has a complete header`},
	{"KIND", 4, "u16", "", "what the chunk holds, see Chunk kinds"},
	{"SIZE", 8, "u32", "bytes", "size as stored, with this header, a multiple of 8; 0: not sealed, the chunk takes " +
		"its whole slot, and its contents end at the last non-zero word or where the last record says"},
	{"PID", 12, "u32", "", "process id of the task"},
	{"TID", 16, "u32", "", "thread id of the task"},
	{"NUMBER", 20, "u32", "", "number of the chunk among those of its task and kind, from 0; a gap means that " +
		"chunks between are lost"},
	{"COUNTER", 24, "u64", "ticks", "full timestamp counter when the chunk was begun; gives the high half for its " +
		"first events"},
	{"MONOTONIC", 32, "u64", "ns", "CLOCK_MONOTONIC at the same moment, read right after the counter; 0: not read"},
	{"IMAGE", 40, "u64", "", "image id: which program image the ids of the events belong to"},
	{"KEY", 48, "u64", "ticks", "task key: the counter when the task registered; distinguishes tasks that " +
		"had the same thread id one after another"},
	{"LOST", 56, "u64", "events", "events lost by this task so far"},
	{"COMM", 64, "char[16]", "", "name of the thread, NUL-padded"},
	{"PARENT_PID", 80, "u32", "", "process id of the task this one was forked from; 0: not forked"},
	{"PARENT_TID", 84, "u32", "", "its thread id"},
	{"PLAIN", 88, "u32", "bytes", "compressed chunks: size, with this header, of the events chunk that it stands for"},
	{"FIRST", 92, "u32", "", "profile and count chunks: id of the first entry"},
	{"STACK", 104, "u64", "", "number of the stack the task is on when the chunk begins; 0: the same as in " +
		"the chunk before"},
	{"UNTIL", 112, "u64", "ticks", "sched chunks: counter until which the chunk tells of the task"},
}

// Kinds are the kinds of chunk.
var Kinds = []Value{
	{"EVENTS", 1, "event words"},
	{"IMAGE", 2, "describes a program image, `key=value` strings"},
	{"PROFILE", 3, "counts and times for each function, no stream of events"},
	{"MAP", 4, "the images of a process, and their ids"},
	{"COUNT", 5, "counts for each function, no times and no stream of events"},
	{"SWITCHED_OFF", 6, "functions that are not recorded any more, because recording them costs too much"},
	{"SCHED", 7, "when a thread was off a processor; written by a recorder"},
	{"COMPRESSED", 8, "event words, compressed; written by a recorder"},
}

// Compressed is what the contents of a compressed chunk begin with.
var Compressed = []Field{
	{"FRAME", 0, "u32", "bytes", "size of the zstd frame, which follows"},
	{"OPERATIONS", 4, "u32", "bytes", "size of the column of operations, which the decoded frame begins with"},
	{"IDS", 8, "u32", "bytes", "size of the column of ids, which follows"},
	{"RECORDS", 12, "u32", "bytes", "size of the column of records, which follows; the rest are the times"},
}

// CompressedHead is its size in bytes.
const CompressedHead = 16

// MostColumns is how many bytes of columns a word of 8 bytes takes at most.
const MostColumns = 12

// Operations are what the column of operations says of a word.
var Operations = []Value{
	{"EXIT", 0, "an exit of the function that was entered last in this chunk, of those that were not left"},
	{"HOLE", 1, "a zero word"},
	{"RECORD", 2, "a record, or a word that is none and no entry or exit: the column of records has bits 32 to 63, " +
		"then the payload words"},
	{"EXIT_OF", 3, "an exit of another function, which the column of ids tells"},
	{"ENTRY_OF", 4, "an entry of a function that the column of ids tells"},
	{"ENTRY", 5, "this and above: an entry of the function whose position in the list of ids is the value minus 5"},
}

// MostPlain is the size of the largest chunk that is compressed: what a small file can make a reader do is bounded by it.
const MostPlain = ChunkSize

// NewID in the column of ids says that the list does not have the id.
const NewID = 0xffff

// Deltas are the first bytes in the column of times that are not themselves the difference.
var Deltas = []Value{
	{"TWO", 251, "the next 2 bytes are"},
	{"THREE", 252, "the next 3 bytes are"},
	{"FOUR", 253, "the next 4 bytes are"},
}

// Policies say what a writer does when no chunk is free.
var Policies = []Value{
	{"BLOCK", 0, "the task waits for the recorder"},
	{"DROP", 1, "the task continues; its events are lost and counted"},
	{"OVERWRITE", 2, "the task's oldest chunk is reused: the trace keeps the newest events"},
}

// States are the states of the chunks of a pool.
var States = []Value{
	{"FREE", 0, "free; its contents are undefined"},
	{"OWNED", 1, "a task writes events to it"},
	{"FULL", 2, "waits for the recorder"},
	{"WRITING", 3, "the recorder is writing it to disk"},
}

// RequestStates are the states of the slot for requests.
var RequestStates = []Value{
	{"FREE", 0, "there is no request"},
	{"TAKEN", 1, "a thread is writing a request"},
	{"ASKED", 2, "the request waits for the recorder"},
	{"ANSWERED", 3, "the answer is ready for the requesting thread"},
}

// Requests are the kinds of request to a recorder.
var Requests = []Value{
	{"NEW_IMAGE", 1, "open the file of the image that the process runs, whose id is the argument, so its symbols can " +
		"be read later"},
	{"LIBRARY", 2, "say which file takes the place of one that the dynamic loader has just opened, as the descriptor that " +
		"is the argument. With the answer `DONE` the argument is 0, the file stays, or a descriptor of the recorder " +
		"and, in the high half, the low half of the inode of the file that it is"},
	{"PLACE", 3, "say where the process is to map a page of code for `FOLLOW`, if it knows of none. With " +
		"the answer `DONE` the argument is its address. If it was not 0, a Go program's own code asks by itself, and there " +
		"need be no other"},
	{"FOLLOW", 4, "have the process ask before it executes a program: the argument is the address of two words in its " +
		"memory, those of the routine that asks and of a page of code. With the answer `LATER` another page is needed"},
	{"EXEC", 5, "trace the program that a thread of the process is about to execute: the argument is the address, in its " +
		"memory, of the path (8 bytes), the directory's descriptor (4), the flags of execveat (4) and the thread's id (4)"},
	{"DUMP", 6, "write what a flight recorder has: the argument is the id, in the trace, of the function whose call asks. " +
		"With the answer the events up to now are copied, or will not be"},
	{"LOADED", 7, "the dynamic loader of a process that was attached to has mapped libraries, or is about to unmap some: the " +
		"argument is the address, in its memory, of a step that it can do for the recorder. With the answer `DONE` there is one " +
		"to be done, unless its kind is 0"},
}

// Answers are the answers of a recorder.
var Answers = []Value{
	{"NONE", 0, "no answer in time"},
	{"DONE", 1, "the request was carried out"},
	{"UNSUPPORTED", 2, "the recorder does not know the kind"},
	{"FAILED", 3, "the request failed"},
	{"LATER", 4, "the recorder is at work: ask again in a moment"},
}

// Layouts say how chunks follow the header.
var Layouts = []Value{
	{"SLOTS", 0, "every chunk begins at a multiple of the chunk size after the header, whatever its stored size; " +
		"a slot without the chunk magic is unused. Pools, and files that programs write themselves"},
	{"PACKED", 1, "every chunk begins where the one before it ends, and is sealed. Files written by a recorder"},
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

// CountChunkSize is the chunk size of a trace of counts: a thread's table takes a multiple of it.
const CountChunkSize = 16 << 10

// CountEntry is the size of one entry of a count chunk in bytes: a number of calls.
const CountEntry = 8

// Range is an entry of the header's table of id ranges.
var Range = []Field{
	{"IMAGE", 0, "u64", "", "image id; 0: the ids belong to no image"},
	{"FIRST", 8, "u32", "", "its first id"},
	{"COUNT", 12, "u32", "", "number of ids; 0: the entry is free"},
}

// RangeEntry is the size of an entry of the table of id ranges in bytes.
const RangeEntry = 16

// Map is one entry of a map chunk.
var Map = []Field{
	{"FIRST", 0, "u32", "", "the image's first id"},
	{"COUNT", 4, "u32", "", "its number of ids; 0: none of its functions is traced, only system calls are"},
	{"IMAGE", 8, "u64", "", "image id"},
	{"BIAS", 16, "u64", "", "load address minus link address in this process"},
	{"LOADED", 24, "u64", "ticks", "counter when the image registered"},
	{"UNLOADED", 32, "u64", "ticks", "counter when it was unloaded; 0: it is still loaded"},
}

// MapEntry is the size of an entry of a map chunk in bytes.
const MapEntry = 40

// SwitchedOff is one entry of a chunk of functions that the recorder has switched off.
var SwitchedOff = []Field{
	{"ID", 0, "u32", "", "id of the function"},
	{"RATE", 4, "u32", "1/s", "how often a second threads called it that called too much, estimated"},
	{"COUNTER", 8, "u64", "ticks", "counter when it was switched off: calls from then on may be missing"},
}

// SwitchedOffEntry is the size of such an entry in bytes.
const SwitchedOffEntry = 16

// Sched is one entry of a sched chunk.
var Sched = []Field{
	{"FROM", 0, "u64", "ticks", "counter when the thread left the processor"},
	{"TO", 8, "u64", "ticks", "counter when it was on one again"},
	{"STATE", 16, "u32", "", "what it did meanwhile, see below"},
}

// SchedEntry is the size of an entry of a sched chunk in bytes.
const SchedEntry = 24

// SchedStates say what a thread does that is not on a processor.
var SchedStates = []Value{
	{"WAITING", 0, "it waits for something, and then for a processor"},
	{"READY", 1, "it is new, or was interrupted, and only waits for a processor"},
	{"UNKNOWN", 2, "not known: it may have been on a processor, too"},
}

// Index has the fields of an entry of the file chunks that the chunk's header does not have.
var Index = []Field{
	{"OFFSET", 96, "u64", "bytes", "offset of the chunk in `events`"},
	{"CRC", 124, "u32", "", "CRC-32C, see below"},
}

// IndexMagic begins the file index; the sizes are in bytes.
const (
	IndexMagic   = "FENTRYX1"
	IndexVersion = 9
	IndexHeader  = 64
	SegmentMagic = 0x47455358
	SegmentSize  = 96
)

// IndexHead is the header of the file index.
var IndexHead = []Field{
	{"MAGIC", 0, "char[8]", "", `the bytes "FENTRYX1"`},
	{"VERSION", 8, "u32", "", "version of this file, `INDEX_VERSION`; a reader ignores a file of any other"},
	{"IDENTITY", 16, "u8[24]", "", "`COUNTER`, `MONOTONIC` and `REALTIME` of the header of `events`"},
	{"CRC", 60, "u32", "", "CRC-32C of the 60 bytes before"},
}

// Segment is the header of a segment of the file index.
var Segment = []Field{
	{"MAGIC", 0, "u32", "", `0x47455358, the bytes "XSEG"`},
	{"KIND", 4, "u32", "", "what the segment has"},
	{"PID", 8, "u32", "", "the task: as in the headers of its chunks"},
	{"TID", 12, "u32", "", ""},
	{"KEY", 16, "u64", "ticks", ""},
	{"FIRST", 24, "u64", "ticks", "the least counter of its events in the segment"},
	{"LAST", 32, "u64", "ticks", "the greatest"},
	{"CHUNKS", 40, "u32", "", "how many chunks the segment is of"},
	{"CHUNKS_CRC", 44, "u32", "", "CRC-32C of what the task's segments are made of up to this one, see below"},
	{"STATES", 48, "u32", "bytes", "size of the states, which follow the header"},
	{"FUNCTIONS", 52, "u32", "bytes", "size of the functions, which follow the states"},
	{"STATES_CRC", 56, "u32", "", "CRC-32C of the states"},
	{"FUNCTIONS_CRC", 60, "u32", "", "CRC-32C of the functions"},
	{"LISTS", 64, "u32", "bytes", "size of the lists, which follow the functions"},
	{"SUMS", 68, "u32", "bytes", "size of the sums, which follow the lists"},
	{"LISTS_CRC", 72, "u32", "", "CRC-32C of the lists"},
	{"SUMS_CRC", 76, "u32", "", "CRC-32C of the sums"},
	{"END", 80, "u32", "", "1: the task has no more chunks"},
	{"GISTS", 84, "u32", "bytes", "size of the gists, which follow the sums"},
	{"GISTS_CRC", 88, "u32", "", "CRC-32C of the gists"},
	{"CRC", 92, "u32", "", "CRC-32C of 24 bytes, the identity as in the file's header, and the 92 bytes before"},
}

// SegmentKinds are the kinds of segments.
var SegmentKinds = []Value{
	{"BLOCKS", 1, "blocks of a task; its segments are in order, and those of tasks are mixed"},
	{"IMAGES", 2, "images and ranges of ids; the states are a list of them, see below, and all else is 0"},
	{"PATHS", 3, "a long run of a task's blocks: the states are the sums of its paths, see below; all else is 0 but the task"},
}

// BlockFlags say what is in a block besides calls.
var BlockFlags = []Value{
	{"NOTES", 1, "events that are no call's"},
	{"LOST", 2, "a loss among them"},
	{"ALIKE", 4, "calls of the same function and entry that end in it or are put aside: it must be decoded to tell which"},
	{"PLAIN", 8, "calls have come and gone on one stack only, and none were put aside or lost"},
	{"GIST", 16, "there is a gist of it"},
}

// StateFlags say what a difference of states has.
var StateFlags = []Value{
	{"LOSSY", 1, "events were lost since the stack was last empty"},
	{"TAIL", 2, "the event before the block is an exit, and its first one an entry at the same time"},
	{"LEAF", 4, "the event before the block is an entry, and its first one the exit of that call"},
	{"OVER", 8, "calls are open that are not followed, because there are too many"},
	{"NUMBER", 16, "the number of the next chunk is not that of the one before plus 1"},
	{"COMM", 32, "the task has another name"},
	{"INHERITED", 64, "the task has found out that it inherited other calls"},
	{"ASIDE", 128, "other calls are aside"},
}

// DataFlags are the flags of a DATA record.
var DataFlags = []Value{
	{"CUT", 1, "there was more than LENGTH bytes"},
	{"UNREADABLE", 2, "not all of it could be read: what there is ends where the memory did"},
	{"STRING", 4, "the bytes end before the first NUL, which was seen unless CUT or UNREADABLE is set"},
	{"VALUES", 8, "no memory: what the conversions of the format at the address take, in their order. Each has a word, long doubles have two"},
}

// Ends are values of BACKTRACE's END. That of a register that is not known is UNDEFINED | register << 4.
var Ends = []Value{
	{"OUTERMOST", 1, "the last frame is the thread's first"},
	{"NO_TABLE", 2, "there are no unwind tables for its code, or what they say is not understood"},
	{"BAD_CFA", 3, "by the tables the next frame would be where it cannot be"},
	{"DEPTH", 4, "there are more frames than are followed"},
	{"UNDEFINED", 5, "the next frame depends on a register that is not known: its DWARF number is in bits 4 to 7"},
	{"FILTERED", 6, "the process filters its system calls (seccomp), and the walk would have needed some"},
	{"GONE", 7, "the stack was not there any more, or more of it than was copied"},
}

// StackModes are values of BACKTRACE's MODE.
var StackModes = []Value{
	{"PARTIAL", 1, "from a stack pointer and a program counter: what other registers were is known where a frame has saved them"},
	{"FULL", 2, "from the registers of a call, through handlers of signals and traced functions"},
	{"DEFERRED", 3, "the same, but at the first event after it was asked for"},
	{"ENTRY", 4, "the same, at the beginning of a system call"},
}

// Triggers are values of TRIGGER's WHAT.
var Triggers = []Value{
	{"ON", 1, "tracing goes on"},
	{"OFF", 2, "tracing pauses: calls that begin from now on are not recorded; those that are open end as ever"},
	{"FINISH", 3, "the recording ends"},
	{"STACKTRACE", 4, "the calls that are open now, the function's own included, were asked for"},
	{"SNAPSHOT", 5, "a flight recorder is asked to write what it has"},
}
