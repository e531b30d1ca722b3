package spec

// Records are everything in an events chunk that is not an entry or exit. A record's
// first word is its header: a word like an event's, whose id lies above the ids of
// functions and says what the record is, how many words follow, and whether they are
// all there. So a reader can skip what it does not know, and recognise a record that a
// kill has cut.
//
//	bit 0-31   low half of the counter
//	bit 32-39  payload words
//	bit 40-46  type
//	bit 47     open: the payload is still to be written
//	bit 48-62  0x7ffe
//	bit 63     as types define, else 0
const (
	IDMax           = 0x7ffdffff // largest id of a function
	RecordBase      = 0x7ffe0000 // id of a record but for type, words and open
	RecordMask      = 0x7fff0000 // bits of an id that tell a record by RecordBase
	RecordOpen      = 0x8000     // in the id
	RecordTypeShift = 8          // in the id
	RecordTypeMask  = 0x7f
	RecordWords     = 0xff // most payload words

	NoWord = 254 // INDEX of a DATA that has nothing

	GoroutineStack = 1 << 63 // bit of the numbers of goroutines' stacks
	DepthEnd       = 1 << 63 // bit of a DEPTH's DISTANCE
	StackAtSyscall = 1 << 63 // bit of a BACKTRACE's FUNCTION
	StackOnTimer   = 1 << 62 // bit of a BACKTRACE's FUNCTION
	ExactPC        = 1 << 62 // bit of a word of FRAMES
)

// A Record is a type of record.
type Record struct {
	Name    string
	Type    uint32
	Payload []Field // the last one can be "text" or "words": what there is up to the record's end
	Doc     string
}

// Words is the least number of payload words.
func (r *Record) Words() int {
	n := 0
	for _, f := range r.Payload {
		if f.Type != "text" && f.Type != "words" {
			n += f.Size()
		}
	}
	return n / 8
}

// Records are the types of record. Those below 16 are for system calls, signals, arguments and
// backtraces, as far as they are not taken yet.
var Records = []Record{
	{"SYS", 1, []Field{{"VALUE", 0, "u64", "", "the number of the call or, with bit 63 of the header set, its result"},
		{"ARGUMENTS", 8, "words", "", "the arguments, six at most (absent with a result)"}},
		"A system call begins, or ends. An end belongs to the innermost system call of the task that has begun and has " +
			"not ended; a task can begin with one, the end of the call that created it."},
	{"DATA", 2, []Field{{"INDEX", 0, "u8", "", "which argument, or which word of an ARGS, from 0; 255: the result of a system call; " +
		"254: of nothing, the room was reserved in vain"},
		{"KIND", 1, "u8", "", "0, others are reserved"}, {"FLAGS", 2, "u16", "", "below"},
		{"LENGTH", 4, "u32", "bytes", "how many were asked for"}, {"ADDRESS", 8, "u64", "", "where they were"},
		{"BYTES", 16, "text", "", "as many as were read, zero-padded to whole words"}},
		"Memory that an argument of the call points to, directly or through other such memory, which ADDRESS tells. " +
			"It directly follows the SYS or ARGS record, in the same chunk, or another DATA of the same. What does not fit " +
			"into one goes on in the next, with the same INDEX and a higher ADDRESS."},
	{"ARGS", 3, []Field{{"WORDS", 0, "words", "", "words that were captured, as the symbol file says (`# capture`)"}},
		"What is captured of a call's arguments, or with bit 63 of the header set of its result. It directly follows the " +
			"call's entry or exit, in the same chunk. Memory to which its words point follows in DATA, whose INDEX is that " +
			"of the word."},
	{"BACKTRACE", 4, []Field{{"ID", 0, "u32", "", "number of the innermost frame, see FRAMES; 0: there is none"},
		{"END", 4, "u8", "", "why there are no more frames, below"}, {"MODE", 5, "u8", "", "what the walk began with, below"},
		{"FUNCTION", 8, "u64", "", "id of the function whose call asked for it, or with bit 63 set the number of the system " +
			"call that begins; the frames are those of its callers. With bit 62 set a timer has asked, so many ticks ago as the " +
			"bits below say; the frames begin with the function that is interrupted"}},
		"The stack as it is now. It follows the call's entry, if that is recorded, with the same counter."},
	{"FRAMES", 5, []Field{{"ID", 0, "u32", "", "number of the first of these frames; the others' are the next ones"},
		{"PARENT", 4, "u32", "", "number of the frame around the first; 0: it is the outermost"},
		{"PCS", 8, "words", "", "where each frame is, inwards: a return address, with bit 62 set the address of the next " +
			"instruction, or with bit 63 set the id of a function whose moved first instructions the frame is in"}},
		"What numbers of frames mean in this chunk from here on. A number stands for a frame and all around it."},
	{"SIGNAL", 6, []Field{{"SIGNO", 0, "u64", "", "the signal"}, {"CODE", 8, "i64", "", "`si_code`, if it is known"},
		{"ADDRESS", 16, "u64", "", "`si_addr`, if it is known"}, {"PC", 24, "u64", "", "where the thread was interrupted"},
		{"HANDLER", 32, "u64", "", "id of the function that is called, whose entry is the next one; 0: it is not traced"},
		{"BLOCKED", 40, "u64", "", "the signals that were blocked where the thread was interrupted, a bit each from 0 for signal 1"}},
		"A signal is delivered to a handler that is called now. What follows can lie inside a system call that has begun. " +
			"The handler has ended when its call has."},
	{"MAPS", 7, []Field{{"ADDRESS", 0, "u64", "", "where the image's first segment begins"},
		{"SIZE", 8, "u64", "bytes", "up to the end of the last one"}, {"BIAS", 16, "u64", "", "load address minus link address"},
		{"FILE", 24, "text", "", "build-id in hex digits, a space, and the path"}},
		"A program or library is mapped in the process. It comes before the first FRAMES of the chunk with an address there."},
	{"SYNC", 16, []Field{{"COUNTER", 0, "u64", "ticks", "the full counter; 0: none, the record fills words that were left"}},
		"Gives the high half of the counter. Written before the first event whose high half is not that of the event " +
			"before it (or of the chunk header)."},
	{"LOST", 17, []Field{{"COUNT", 0, "u64", "events", "how many"}},
		"Events of this task were lost at this point."},
	{"RESYNC", 18, []Field{{"COUNT", 0, "u64", "frames", "how many"}},
		"The innermost open frames of the current stack ended without an exit of their own: longjmp, an exception. " +
			"A frame closed this way can still exit later (a coroutine was left and resumed)."},
	{"STACK", 19, []Field{{"STACK", 0, "u64", "", "number of the stack, unique in the process; with bit 63 set, the others are a goroutine's"}},
		"The task now runs on another stack: a coroutine, a signal handler on a stack of its own."},
	{"FORK", 20, []Field{{"PARENT", 0, "u64", "", "process id << 32 | thread id of the parent"}},
		"First event of a forked child: the frames that were open in the parent are open here too."},
	{"START", 21, nil,
		"A program image starts in this task, its first one."},
	{"COMM", 22, []Field{{"NAME", 0, "char[16]", "", "the name, NUL-padded"}},
		"The thread changed its name."},
	{"THREAD_END", 23, nil,
		"The thread had ended by this time; no event of it follows. Written by whichever notices: another thread of the " +
			"process, or the recorder. Calls still open then may have ended at the event before, or not at all."},
	{"MARK", 24, []Field{{"VALUE", 0, "u64", "", "the user's number"}, {"TEXT", 8, "text", "", "the user's text, " +
		"NUL-padded to whole words"}},
		"A mark set by the program."},
	{"GOROUTINE", 26, []Field{{"NUMBER", 0, "u64", "", "the new goroutine's"}, {"PARENT", 8, "u64", "", "the number of the one that " +
		"made it"}, {"START", 16, "u64", "", "address of the function that it begins with"}, {"MADE_AT", 24, "u64", "", "the address " +
		"behind the go statement"}},
		"A goroutine of a Go program is made. Addresses are as loaded."},
	{"DEPTH", 27, []Field{{"DISTANCE", 0, "u64", "bytes", "from where the frame of a call begins to the base of its stack, which is " +
		"the same wherever the stack is; with bit 63 set, all calls whose frames are farther from it are over"}},
		"Calls of Go functions that defer others. It follows the entry of such a call and, with bit 63 set, comes before its " +
			"exit: a panic from which the call has recovered has ended those inside it without exits of their own. With bit " +
			"63 and distance 0 the goroutine has ended."},
	{"TRIGGER", 25, []Field{{"WHAT", 0, "u32", "", "below"},
		{"AT_END", 4, "u32", "", "1: its call ends, and took longer than was asked for; 0: it begins"},
		{"FUNCTION", 8, "u64", "", "id of the function that is called"}},
		"Something was done because a function is called, or its call, the innermost one that is open, was a long one. What " +
			"is said of tracing holds for all threads of the process."},
}
