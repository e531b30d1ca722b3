package spec

// A Reserved is a reserved id and the payload words that follow its event word.
type Reserved struct {
	Name    string
	Code    uint32 // added to ReservedBase
	Payload []Field
	Doc     string
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
