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
)

// A Record is a type of record.
type Record struct {
	Name    string
	Type    uint32
	Payload []Field // the last one can be "text": bytes up to the record's end
	Doc     string
}

// Words is the least number of payload words.
func (r *Record) Words() int {
	n := 0
	for _, f := range r.Payload {
		if f.Type != "text" {
			n += f.Size()
		}
	}
	return n / 8
}

// Records are the types of record. Those below 16 are reserved for system calls,
// arguments and backtraces; type 2 will mean data that continue the record before.
var Records = []Record{
	{"SYNC", 16, []Field{{"COUNTER", 0, "u64", "ticks", "the full counter"}},
		"Gives the high half of the counter. Written before the first event whose high half is not that of the event " +
			"before it (or of the chunk header)."},
	{"LOST", 17, []Field{{"COUNT", 0, "u64", "events", "how many"}},
		"Events of this task were lost at this point."},
	{"RESYNC", 18, []Field{{"COUNT", 0, "u64", "frames", "how many"}},
		"The innermost open frames of the current stack ended without an exit of their own: longjmp, an exception. " +
			"A frame closed this way can still exit later (a coroutine was left and resumed)."},
	{"STACK", 19, []Field{{"STACK", 0, "u64", "", "number of the stack, unique in the process"}},
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
}
