package spec

// Configs are the structures that a patcher fills in and the runtime reads: symbols
// of the runtime's object, and what Image points to.
var Configs = []Struct{
	Config, Image, GoModule, GoOriginal, Action, Capture, CaptureOp, Condition, Meeting, State, Acting, Change, ChangedRoots, ChangedActions,
}

// Magic numbers and versions of the two.
const (
	ConfigMagic   = "FENTRYCF"
	ConfigVersion = 1
	ImageMagic    = "FENTRYIM"
	ImageVersion  = 8
)

// Config is the symbol fentry_config: what to do in a process, whatever images it has.
var Config = Struct{"config", "CONFIG", 1280, "the symbol fentry_config: what to do in the process", []Field{
	{"MAGIC", 0, "u64", "", "the bytes " + ConfigMagic},
	{"VERSION", 8, "u32", "", "of this structure"},
	{"MODE", 12, "u32", "", "see Modes"},
	{"FLAGS", 16, "u32", "", "see Flags"},
	{"DEPTH", 20, "u32", "", "calls deeper than this are not recorded; 0: no limit"},
	{"POLICY", 24, "u32", "", "what to do when there is no room for events"},
	{"THRESHOLD", 32, "u64", "ns", "shorter calls are not recorded; 0: all are"},
	{"STACKS", 40, "u8[64]", "", "bitmap, by number, of the system calls at which the stack is walked"},
	{"EVERY", 104, "u64", "ns", "the stack is walked whenever a thread has run for so long; 0: it is not"},
	{"SESSION", 256, "char[512]", "", "path of a recorder's pool or trace file"},
	{"DIR", 768, "char[512]", "", "trace directory to start"},
}}

// Image is the symbol fentry_image: what is traced in one image. Distances are from the
// structure, so they hold wherever the image is loaded.
var Image = Struct{"image_info", "IMAGE", 1368, "the symbol fentry_image: what is traced in an image", []Field{
	{"MAGIC", 0, "u64", "", "the bytes " + ImageMagic},
	{"VERSION", 8, "u32", "", "of this structure"},
	{"SITES", 12, "u32", "", "number of ids: local ids are 1 to this"},
	{"ID", 16, "u64", "", "image id"},
	{"ADDRESS", 24, "u64", "", "of this structure, as linked"},
	{"THUNKS", 32, "i64", "bytes", "distance to the thunk of id 1; 0: none"},
	{"SWITCHES", 40, "i64", "bytes", "distance to the byte of id 1 that its thunk tests, see Switches; 0: none"},
	{"ROOTS", 48, "i64", "bytes", "distance to a bitmap of graph roots by local id; 0: none"},
	{"MODE", 56, "u32", "", "tracer whose routines the thunks call, see Modes"},
	{"OPTIONS", 60, "u32", "", "see Options"},
	{"PLAIN", 64, "u32", "", "1: functions that no compiler has prepared for tracing are among those with ids"},
	{"LIBRARY", 68, "u32", "", "1: the image is loaded into programs, from a file of its own; 2: from a copy whose recorder knows " +
		"it by its id"},
	{"WITHOUT", 72, "i64", "bytes", "distance to a bitmap, by local id, of functions that are left out with all inside them; " +
		"0: none"},
	{"ACTIONS", 80, "i64", "bytes", "distance to a table of actions, sorted by local id, see Action, and " +
		"behind it its index, a u32 for each local id and one more: how many actions the ids before have; 0: none"},
	{"COUNTS", 88, "i64", "bytes", "distance to zeroed memory, 4 bytes for each action: how often it was done, if it has a limit"},
	{"ACTIONS_COUNT", 96, "u32", "", "length of the table"},
	{"STAGES", 100, "u32", "", "1: the image is a guest that says when it is initialised and finalised, so that it can be unloaded"},
	{"TABLE", 104, "i64", "bytes", "distance to the section .fentry.sites, which has its functions' addresses; 0: none"},
	{"GOROUTINE", 112, "u32", "bytes", "Go's programs: where in runtime.g the goroutine's number is; 0: the image is none"},
	{"PARK", 116, "u32", "", "Go's programs: local id of runtime.gopark, in which goroutines wait; 0: it is not traced"},
	{"UNWIND", 120, "i64", "bytes", "distance to a search table (.eh_frame_hdr) of the image's unwind information; 0: that of its " +
		"program headers"},
	{"MODULE", 128, "i64", "bytes", "Go's programs that are relocated: distance to a GoModule; 0: there is none"},
	{"IDLEN", 136, "u8", "bytes", "length of the build-id"},
	{"BUILD_ID", 137, "u8[103]", "", "build-id of the image before it was patched"},
	{"DETOURS", 240, "i64", "bytes", "distance to a table of the runtime's routines, see Detours; 0: there is none"},
	{"BEFORE", 248, "u32", "bytes", "distance back from here to where the runtime begins"},
	{"RUNTIME", 252, "u32", "bytes", "size of the runtime; 0: it is not known"},
	{"PATH", 256, "char[1008]", "", "path of the image"},
	{"ERRNO_AT", 1264, "i64", "bytes", "distance to a word with the address of the C library's __errno_location, or with bit 0 set to " +
		"that function; 0: it is not known, or nobody asks"},
	{"CREATED", 1272, "u32", "", "Go's programs: local id of runtime.newproc1, which makes goroutines; 0: it is not looked at"},
	{"PARENT", 1276, "u32", "bytes", "Go's programs: where in runtime.g the number of the goroutine's parent is; the address behind " +
		"the go statement follows, and in the second word behind that the address of the function"},
	{"READY", 1280, "u32", "", "Go's programs: local id of runtime.ready, which makes a goroutine ready to run; 0: it is not traced"},
	{"ENDED", 1284, "u32", "", "Go's programs: local id of runtime.goexit1, which goroutines end with; 0: it is not looked at"},
	{"CURG", 1288, "u32", "bytes", "Go's programs: where in runtime.m the goroutine is that it runs"},
	{"DEEP", 1292, "u32", "", "Go's programs: the bit of an id, as slow paths get it, of events that have a DEPTH"},
	{"ORIGINAL", 1296, "i64", "bytes", "Go's programs that are patched: distance to a GoOriginal; 0: there is none"},
	{"OFF", 1304, "i64", "bytes", "distance to a bitmap, by local id, of functions that are off at first; 0: none"},
	{"THUNK_SIZE", 1312, "u32", "bytes", "of a thunk, a power of 2"},
	{"THREAD", 1316, "u32", "bytes", "Go's programs for arm64: where in runtime.m a word is that nobody else uses, which becomes the " +
		"thread's control base; 0: the thread pointer is another's"},
	{"THUNKS_COUNT", 1320, "u32", "", "how many thunks there are: ids from 1 to this have one"},
	{"GO_CODE", 1328, "i64", "bytes", "Go's programs with C code, and OCaml's: distance to code that is all Go's or OCaml's"},
	{"GO_CODE_SIZE", 1336, "u64", "bytes", "of that code; 0: there is none"},
	{"BACKS", 1344, "i64", "bytes", "arm64: distance to the back of the thunk of id 1; 0: thunks have none"},
	{"OCAML_CODE", 1352, "i64", "bytes", "OCaml's programs: distance to the runtime's code that calls C"},
	{"OCAML_CODE_SIZE", 1360, "u64", "bytes", "of that code; 0: there is none"},
}}

// Words of an image's index of actions: the place of a function's first action in the table, and what is said of all that it
// has. Where only general registers in their order, or one result, are captured, that needs no more than it says.
const (
	ActionsQuick       = 1 << 31 // all of them capture something, without a limit
	ActionsEntry       = 27      // from this bit: words of the call's entry with all that is captured then; 0: see the table
	ActionsEntryMask   = 15
	ActionsResult      = 25 // from this bit: what is captured at its exit, see PlainResults
	ActionsResultMask  = 3
	ActionsFirst       = 1<<ActionsResult - 1
	MostPlainArguments = 6
)

// PlainResults are results that are a register.
var PlainResults = []Value{
	{"NOTHING", 1, "none is captured"},
	{"GENERAL", 2, "the first general register"},
	{"FLOAT", 3, "the low half of the first floating-point register"},
}

// GoModule says how the module of a position-independent Go program's moved code is made known to the program's runtime.
// Distances are from the image_info.
var GoModule = Struct{"go_module", "GO_MODULE", 32, "a module of a Go program that is relocated; WORDS offsets follow, u32 each", []Field{
	{"FROM", 0, "i64", "bytes", "distance to the module as it is linked"},
	{"TO", 8, "i64", "bytes", "distance to zeroed memory, where it is to be"},
	{"NEXT", 16, "i64", "bytes", "distance to the word of the program's own module that says which one follows"},
	{"SIZE", 24, "u32", "bytes", "of the module, without what it refers to"},
	{"WORDS", 28, "u32", "", "how many of its words are addresses"},
}}

// GoOriginal is what a patched Go program's code was, which it becomes again where nothing is recorded. Behind it, for each
// piece that has been rewritten, by address: how many bytes are between it and the one before, how many it has, both
// unsigned LEB128, and the bytes.
var GoOriginal = Struct{"go_original", "GO_ORIGINAL", 16, "what a Go program's code was; COUNT pieces follow", []Field{
	{"FROM", 0, "i64", "bytes", "distance from the image_info to the first piece"},
	{"SPAN", 8, "u32", "bytes", "from there to the end of the last one"},
	{"COUNT", 12, "u32", "", "how many pieces"},
}}

// Action is one thing that is done at calls of a function beside recording them.
var Action = Struct{"action", "ACTION", 24, "an entry of an image's table of actions", []Field{
	{"ID", 0, "u32", "", "local id of the function; it can have several, which are done in their order here"},
	{"KIND", 4, "u16", "", "see Actions"},
	{"WORDS", 6, "u16", "", "most words of the records that it writes behind a call's entry, with their headers"},
	{"VALUE", 8, "u64", "", "what the kind says; of TRACEON, TRACEOFF, FINISH, STACKTRACE and SNAPSHOT in ns: it is done at the " +
		"end of calls that took longer than this; 0: at their beginning"},
	{"LIMIT", 16, "u32", "", "how often it is done in a process; 0: always"},
	{"PLAIN", 20, "u8", "", "of ARGS, if that is all: how many general registers are captured, in their order; of RESULT: see PlainResults"},
}}

// Actions are what can be done.
var Actions = []Value{
	{"QUIET", 1, "the function's calls are not recorded: it is there for its other actions"},
	{"TRACEON", 2, "tracing goes on, in all threads of the process, with this call"},
	{"TRACEOFF", 3, "tracing pauses, in all threads of the process, before this call"},
	{"FINISH", 4, "the recording of all processes ends before this call"},
	{"STACKTRACE", 5, "the trace says that the calls which are open now are wanted"},
	{"DEPTH", 6, "VALUE levels of calls are recorded from here on, this one included"},
	{"SNAPSHOT", 7, "a flight recorder is asked to write what it has"},
	{"STACK", 8, "the stack is walked, from the function's caller to the thread's first frame"},
	{"ARGS", 16, "words and memory are captured behind a call's entry: VALUE is the distance from the image_info to a Capture"},
	{"RESULT", 17, "the same behind its exit"},
	{"IF", 18, "the call is recorded only if a Condition holds: VALUE is the distance from the image_info to it"},
}

// Condition compares an argument: its text, if it has one, follows it.
var Condition = Struct{"condition", "CONDITION", 16, "compares an argument with a number or a text; HOPS words follow, and LENGTH bytes of text", []Field{
	{"CODE", 0, "u8", "", "where the argument is, see CaptureCodes: a word"},
	{"FROM", 1, "u8", "", "which register, or word of the stack"},
	{"COMPARE", 2, "u8", "", "see Comparisons"},
	{"SIZE", 3, "u8", "", "bits of the word behind SKIP that are compared, 1 to 64; of text: bytes at most"},
	{"IS_SIGNED", 4, "u8", "", "1: its number has a sign"},
	{"SKIP", 5, "u8", "", "lowest bits of the word that are not compared"},
	{"HOPS", 6, "u8", "", "each leads on from the word, which is an address: to what is so many bytes (low half) behind it, of which there are so many (high half, 1 to 8); 0: to that address"},
	{"LENGTH", 7, "u8", "bytes", "of the text"},
	{"VALUE", 8, "u64", "", "the number"},
}}

// Comparisons are how a Condition compares, text from TEXT on.
var Comparisons = []Value{
	{"EQUAL", 1, "the argument is VALUE"},
	{"UNEQUAL", 2, "it is not"},
	{"LESS", 3, "it is less than VALUE"},
	{"AT_MOST", 4, "it is VALUE or less"},
	{"MORE", 5, "it is more than VALUE"},
	{"AT_LEAST", 6, "it is VALUE or more"},
	{"TEXT", 7, "it points to the text, with a NUL behind it"},
	{"NO_TEXT", 8, "it does not"},
	{"LIKE", 9, "the text, in which * stands for any bytes and ? for one, covers what it points to"},
	{"UNLIKE", 10, "it does not"},
}

// Capture says what is captured of one end of a call: operations follow it, those for words first.
var Capture = Struct{"capture", "CAPTURE", 4, "what is captured of one end of a call; OPS operations follow", []Field{
	{"OPS", 0, "u16", "", "how many"},
	{"WORDS", 2, "u16", "", "how many words they capture, those of the record ARGS"},
}}

// CaptureOp is an operation of a Capture.
var CaptureOp = Struct{"capture_op", "CAPTURE_OP", 4, "an operation of a capture", []Field{
	{"CODE", 0, "u8", "", "see CaptureCodes"},
	{"FROM", 1, "u8", "", "which register, or word of the stack, or the captured word that says where memory is"},
	{"MOST", 2, "u16", "bytes", "how much memory is captured at most, or how far behind a captured word a PLACE is"},
}}

// CaptureCodes are the codes of operations: of words up to DEREF, of memory behind it.
var CaptureCodes = []Value{
	{"GENERAL", 1, "a general register that arguments, or at an exit results, are in: a word"},
	{"FLOAT", 2, "the low half of such a vector register: a word"},
	{"VECTOR", 3, "its low 128 bits: two words"},
	{"STACK", 4, "a word of the stack, counted from the first that a caller can pass an argument in"},
	{"X87", 5, "x86-64: the top of the x87's stack: two words"},
	{"NOTHING", 6, "a word of zeros"},
	{"ERRNO", 7, "the thread's errno; where that is not known, a word of which all bits are set"},
	{"PLACE", 8, "a captured word and MOST more, which is an address; 0 if the word is: a word"},
	{"DEREF", 9, "the word at such an address; if it cannot be read, the address where all bits are set"},
	{"BYTES", 10, "memory"},
	{"STRING", 11, "memory up to a NUL"},
	{"SPAN", 12, "as many bytes as the word behind FROM says"},
	{"SPAN_BEFORE", 13, "as many as the word before FROM says"},
	{"SPAN_AT", 14, "what is there is an address and a length, and both this and the bytes there are captured"},
	{"SPAN_AT_BEFORE", 15, "the same with the length before the address"},
	{"FORMAT", 16, "memory up to a NUL, which is a format as printf has it; what its conversions take, a record DATA with VALUES, and the texts " +
		"among that. MOST: how many general registers (lowest 4 bits), vector registers (4 bits) and words of the stack parameters have taken"},
}

// MeetingMagic begins the page where the images of a process meet.
const MeetingMagic = "FTRYHOME"

// Meeting is the page at MeetingPage, in each process that has a runtime: other images find that there, and so does a
// recorder that changes what is traced.
var Meeting = Struct{"meeting", "MEETING", 80, "what is at the address where the images of a process meet", []Field{
	{"MAGIC", 0, "u64", "", "the bytes " + MeetingMagic + "; 0: the runtime is still starting"},
	{"VERSION", 8, "u32", "", "of this structure"},
	{"SIZE", 12, "u32", "bytes", "of this structure"},
	{"IMAGES", 24, "u64", "", "address of the word that has the address of the newest image's State"},
	{"ARMED", 32, "u64", "", "address of the u32 that says whether the process is traced, see Armed"},
	{"SILENT", 40, "u64", "", "address of the u32 that is not 0 if system calls are not traced"},
	{"REMOTE", 48, "u64", "", "where a thread begins that a recorder has call a routine; 0: it cannot on this machine"},
	{"CHANGE", 56, "u64", "", "a routine for the recorder: makes a Change"},
	{"SWITCHED", 72, "u64", "", "address of the u32 that a recorder makes 1 which has switched functions"},
}}

// Armed says whether a process is traced.
var Armed = []Value{
	{"OFF", 0, "it is not"},
	{"ON", 1, "it is"},
	{"PAUSED", 2, "only functions with actions come to the runtime, which may make it go on"},
}

// Syscalls are the bits of the u32 at STATE_O_WORDS + W_SYSCALLS: what an image records of system calls. A call whose
// beginning was recorded has its end recorded, whatever becomes of the others meanwhile.
var Syscalls = []Value{
	{"BEGINS", 1, "their beginnings"},
	{"ENDS", 2, "the ends of those whose beginnings were"},
}

// State is what a recorder reads of an image: the beginning of the runtime's struct image.
var State = Struct{"state", "STATE", 176, "an image of a process", []Field{
	{"NEXT", 0, "u64", "", "the image that registered before; 0: none"},
	{"ID", 8, "u64", "", "image id"},
	{"SITES", 16, "u32", "", "number of its functions: local ids are 1 to this"},
	{"LOADED", 32, "u64", "counter", "when it registered"},
	{"WORDS", 40, "u64", "", "address of what its fast paths look at"},
	{"THUNKS", 48, "u64", "", "address of the first thunk; 0: there are none"},
	{"SWITCHES", 64, "u64", "", "address of the switches, by local id from 1"},
	{"ACTING", 104, "u64", "", "address of its Acting; 0: no function has actions"},
	{"AT", 128, "u64", "", "address of what the image says of itself"},
	{"CODE", 136, "u64", "", "address of the runtime that came with it"},
	{"CODE_SIZE", 144, "u64", "bytes", "of that; 0: it is not known"},
	{"DETOURS", 152, "u64", "", "address of a table of the runtime's routines, see Detours; 0: there is none"},
	{"STAGE", 168, "u32", "", "how far its loading is, see Stages"},
	{"THUNK_SIZE", 172, "u32", "bytes", "of a thunk"},
}}

// Acting is what is done at calls of an image's functions. It stays as it is while anybody can read it, and another one takes
// its place by a store.
var Acting = Struct{"acting", "ACTING", 24, "what is done at calls of an image's functions", []Field{
	{"ACTIONS", 0, "u64", "", "address of a table of actions, with its index behind it"},
	{"COUNTS", 8, "u64", "", "address of how often each was done, u32 each"},
	{"COUNT", 16, "u32", "", "length of the table"},
}}

// Options are flags of IMAGE_O_OPTIONS: which routines of the tracer function_graph its thunks call.
var Options = []Value{
	{"LIMITS", 1, "those for a depth, a threshold, roots or functions left out"},
	{"CLOCKLESS", 2, "those without a clock"},
	{"FLAT", 4, "that for calls without frames, until a recorder wants some"},
}

// Stages are how far the loading of an image is: the memory of one that GOES can be gone.
var Stages = []Value{
	{"COMES", 0, "it is being loaded"},
	{"HERE", 1, "it is initialised"},
	{"GOES", 2, "it is being unloaded, or is unloaded"},
}

// Detours are the routines that a recorder can lead others to, as places in the table of pairs at STATE_O_DETOURS: each
// has the distance from the table to a routine, i32, and to the one that is to take its place.
var Detours = []Value{
	{"GRAPH_ENTER", 0, "calls, to those with limits"},
	{"MCOUNT_GRAPH_ENTER", 1, "... at sites behind the prologue"},
	{"GRAPH_EXIT", 2, "returns"},
	{"GRAPH_ACT", 3, "calls of such functions"},
	{"MCOUNT_GRAPH_ACT", 4, "... at sites behind the prologue"},
	{"GRAPH_ACT_EXIT", 5, "returns from them"},
	{"OPT_ACT", 6, "the same three, in images planned with limits"},
	{"MCOUNT_OPT_ACT", 7, "... at sites behind the prologue"},
	{"OPT_ACT_EXIT", 8, "returns"},
	{"GRAPH_FLAT", 9, "calls, to those that leave the return address alone: an entry and an exit at once"},
	{"MCOUNT_GRAPH_FLAT", 10, "... at sites behind the prologue"},
	{"OPT_FLAT", 11, "the same two, in images planned with limits"},
	{"MCOUNT_OPT_FLAT", 12, "... at sites behind the prologue"},
	{"ORDER_ACT", 13, "the three of actions, in images without a clock"},
	{"MCOUNT_ORDER_ACT", 14, "... at sites behind the prologue"},
	{"ORDER_ACT_EXIT", 15, "returns"},
	{"ORDER_FLAT", 16, "the two without frames, in images without a clock"},
	{"MCOUNT_ORDER_FLAT", 17, "... at sites behind the prologue"},
	{"FLAT_ACT", 18, "the three of actions, in images that begin without frames"},
	{"MCOUNT_FLAT_ACT", 19, "... at sites behind the prologue"},
	{"FLAT_ACT_EXIT", 20, "returns"},
	{"FLAT_GRAPH", 21, "calls in images that begin without frames, to those with frames"},
	{"MCOUNT_FLAT_GRAPH", 22, "... at sites behind the prologue"},
	{"FLAT_OPT", 23, "and to those with limits"},
	{"MCOUNT_FLAT_OPT", 24, "... at sites behind the prologue"},
	{"COUNT", 25, "how many there are"},
}

// Change is what a recorder asks a process for while it runs.
var Change = Struct{"change", "CHANGE", 24, "what is to be changed; ROOTS ChangedRoots and ACTED ChangedActions follow", []Field{
	{"DEPTH", 0, "u32", "", "calls deeper than this are not recorded; 0: no limit"},
	{"ROOTS", 4, "u32", "", "how many images have bitmaps of graph roots; 0: everything is recorded"},
	{"THRESHOLD", 8, "u64", "ns", "shorter calls are not recorded; 0: all are"},
	{"FLAGS", 16, "u32", "", "see Changes"},
	{"ACTED", 20, "u32", "", "how many images get other actions"},
}}

// Changes are flags of a Change.
var Changes = []Value{
	{"ROOTS", 1, "the graph roots become those of the ChangedRoots; else they stay"},
	{"FORGET", 2, "calls that are open are outside of graph roots"},
	{"FLAT", 8, "the recorder leads calls to routines that know of no frames"},
	{"FRAMES", 4, "frames are to have depths and times; else DEPTH, ROOTS and THRESHOLD mean nothing"},
}

// Changed is what the routine says that makes a Change.
var Changed = []Value{
	{"IMPOSSIBLE", 0, "nothing has changed: what the process is traced with does not allow that"},
	{"MADE", 1, "it has changed"},
	{"NO_MEMORY", 2, "nothing has changed: there is no memory"},
}

// ChangedActions are the actions of an image from now on. The memory becomes the runtime's, which unmaps it, if the change is made.
var ChangedActions = Struct{"changed_actions", "CHANGED_ACTIONS", 40, "the actions of an image", []Field{
	{"IMAGE", 0, "u64", "", "address of its State"},
	{"MEMORY", 8, "u64", "", "address of the table of actions, with its index behind it, in memory of its own"},
	{"SIZE", 16, "u64", "bytes", "of that memory"},
	{"COUNTS", 24, "u64", "", "address of how often each was done, u32 each"},
	{"COUNT", 32, "u32", "", "length of the table"},
}}

// ChangedRoots are the graph roots of an image from now on.
var ChangedRoots = Struct{"changed_roots", "CHANGED_ROOTS", 16, "the graph roots of an image", []Field{
	{"IMAGE", 0, "u64", "", "address of its State"},
	{"BITMAP", 8, "u64", "", "address of a bitmap by local id, which is copied"},
}}

// Switches are the bits of the byte that a function's thunk tests. Zeroed memory is off.
var Switches = []Value{
	{"ON", 1, "calls are traced; derived: the process is armed, and no other bit but SLOW and ACTS is set"},
	{"SLOW", 2, "calls are traced by the slow path: threads of the process cannot find their blocks otherwise"},
	{"COSTLY", 4, "calls are not traced: the recorder has switched the function off, because recording it costs too much"},
	{"ACTS", 8, "the function has actions: it stays on while tracing pauses"},
	{"FILTERED", 16, "calls are not traced: who controls the recorder does not want them now"},
}

// Modes are the tracers, which Tracers names.
var Modes = []Value{
	{"GRAPH", 0, "function_graph: entries and exits"},
	{"FUNCTION", 1, "function: entries"},
	{"PROFILE", 2, "counts and times for each function, no events"},
	{"COUNT", 3, "counts for each function, no times"},
}

// SyscallNoPlan is what the runtime's table of plans has for a system call that it has no plan for and that has to come to
// its slow path all the same. An image's patcher writes it.
const SyscallNoPlan = 255

// SyscallNumbers is how many system calls the runtime knows by number: larger ones it records like any other, with what
// is in registers.
const SyscallNumbers = 512

// Flags are bits of the configuration's FLAGS.
var Flags = []Value{
	{"NO_RECORDER", 1, "never look for a recorder"},
	{"NO_FILE", 2, "never start a trace directory of its own"},
	{"QUIET", 4, "no messages"},
	{"NO_CLOCK", 8, "events have sequence numbers in place of times"},
	{"FOLLOW", 16, "nothing of the program is traced, only what it executes: it is not in the trace"},
	{"EXECS", 32, "a Go program's own code tells the recorder what it is about to execute"},
}
