package syscalls

import "slices"

// What a call's arguments point to has to be read while the call is made: what the program gives when it begins, what
// the kernel fills in when it ends. A recorder reads what the captures say and knows nothing else of a call; readers
// find the bytes by their addresses, so a capture that is missing or too short costs a pointer in place of a value,
// nothing more.

// A Form is what there is at an address.
type Form uint8

// Forms of memory.
const (
	String   Form = iota + 1 // bytes up to a NUL
	Bytes                    // Size bytes, as often as the count says
	Vectors                  // iovecs: {pointer, length} as often as the count says, and what each points to
	Pointers                 // pointers up to NULL, and the strings they point to
	Message                  // a struct msghdr, and the name, vectors and control bytes that it points to
	Messages                 // structs mmsghdr as often as the count says, each with what a Message has
)

// Bounds of what is captured.
const (
	// MaxPath is how many bytes a String can have that is shown whole: PATH_MAX.
	MaxPath = 4096
	// MaxText is how many bytes of other text and data are shown, as strace's -s 32.
	MaxText = 32
	// MaxElements is how many elements of an array are shown.
	MaxElements = 32
	// MaxArguments is how many strings of an execve are shown.
	MaxArguments = 32
)

// A CountOf says what a capture's count is.
type CountOf uint8

// Where a count comes from.
const (
	CountOne    CountOf = iota // there is one
	CountArg                   // the argument CountArg
	CountBehind                // the 32-bit word that the argument CountArg points to
	CountResult                // the result of the call
)

// A Capture says what memory to read for a call.
type Capture struct {
	Arg    int  // the argument that has the address, from 0
	Form   Form // what is there
	AtExit bool // when the call has ended without an error, not when it begins
	Size   int  // bytes of one element (Bytes)
	// Count and CountArg say how many elements there are.
	Count    CountOf
	CountArg int
	// Limit is the most bytes to read, of each string or vector for those with several.
	Limit int
	// If Values is not empty, the capture is for calls only whose argument When has, under Mask, one of them.
	When   int
	Mask   uint64
	Values []uint64
}

// Applies tells whether a capture is for a call with these arguments.
func (c *Capture) Applies(args *[6]uint64) bool {
	return len(c.Values) == 0 || slices.Contains(c.Values, args[c.When]&c.Mask)
}

// Captures returns what memory to read for a call, in the order of the arguments.
func (c *Call) Captures() []Capture {
	var list []Capture
	for i := range c.Args {
		list = append(list, c.captures(i)...)
	}
	return append(list, conditional[c.Name]...)
}

// captures returns those of an argument by its kind.
func (c *Call) captures(i int) []Capture {
	s := &c.Args[i].spec
	if s.sign == 0 {
		return nil
	}
	t := Capture{Arg: i, AtExit: s.sign == '>', Count: CountOf(s.count.from), CountArg: s.count.arg}
	switch s.kind {
	case "path":
		t.Form, t.Limit = String, MaxPath
	case "mount_data", "str":
		t.Form, t.Limit = String, MaxText+1
	case "argv":
		t.Form, t.Limit = Pointers, MaxText+1
	case "iovec":
		t.Form, t.Limit = Vectors, MaxText
	case "iovec_bare":
		t.Form, t.Size, t.Limit = Bytes, 16, 16*MaxElements
	case "msghdr":
		t.Form, t.Limit = Message, MaxText
	case "mmsghdr":
		t.Form, t.Limit = Messages, MaxText
	case "msgbuf":
		t.Form, t.Size, t.Count = Bytes, 8+MaxText, CountOne
		t.Limit = t.Size
	case "buf", "cwd", "syslog_buf":
		t.Form, t.Size, t.Limit = Bytes, 1, MaxText
		if s.kind == "cwd" {
			t.Limit = MaxPath
		}
	default:
		st, ok := structures[s.kind]
		if !ok {
			return nil
		}
		t.Form, t.Size = Bytes, st.size[c.machine]
		t.Limit = t.Size
		if s.count.from != countOne {
			t.Limit = t.Size * MaxElements
		}
		if st.limit != 0 {
			t.Limit = st.limit
		}
	}
	if s.sign != '&' {
		return []Capture{t}
	}
	after := t
	after.AtExit = true
	return []Capture{t, after}
}

// conditional are the captures of calls whose arguments depend on others.
var conditional = map[string][]Capture{
	"fcntl": {
		{Arg: 2, Form: Bytes, Size: 32, Limit: 32, When: 1, Mask: 0xffffffff, Values: []uint64{5, 6, 7, 36, 37, 38}},
		{Arg: 2, Form: Bytes, Size: 32, Limit: 32, When: 1, Mask: 0xffffffff, Values: []uint64{5, 36}, AtExit: true},
		{Arg: 2, Form: Bytes, Size: 8, Limit: 8, When: 1, Mask: 0xffffffff, Values: []uint64{15}},
		{Arg: 2, Form: Bytes, Size: 8, Limit: 8, When: 1, Mask: 0xffffffff, Values: []uint64{16}, AtExit: true},
	},
	"ioctl": {
		{Arg: 2, Form: Bytes, Size: 36, Limit: 36, When: 1, Mask: 0xffffffff, Values: []uint64{0x5402, 0x5403, 0x5404}},
		{Arg: 2, Form: Bytes, Size: 36, Limit: 36, When: 1, Mask: 0xffffffff, Values: []uint64{0x5401}, AtExit: true},
		{Arg: 2, Form: Bytes, Size: 8, Limit: 8, When: 1, Mask: 0xffffffff, Values: []uint64{0x5414}},
		{Arg: 2, Form: Bytes, Size: 8, Limit: 8, When: 1, Mask: 0xffffffff, Values: []uint64{0x5413}, AtExit: true},
		{Arg: 2, Form: Bytes, Size: 4, Limit: 4, When: 1, Mask: 0xffffffff, Values: ioctlGivesInt},
		{Arg: 2, Form: Bytes, Size: 4, Limit: 4, When: 1, Mask: 0xffffffff, Values: ioctlFillsInt, AtExit: true},
	},
	"prctl": {
		{Arg: 1, Form: String, Limit: 16, When: 0, Mask: 0xffffffff, Values: []uint64{15}},
		{Arg: 1, Form: String, Limit: 16, When: 0, Mask: 0xffffffff, Values: []uint64{16}, AtExit: true},
		{Arg: 1, Form: Bytes, Size: 4, Limit: 4, When: 0, Mask: 0xffffffff, Values: prctlFillsInt, AtExit: true},
	},
	"futex": {
		{Arg: 3, Form: Bytes, Size: 16, Limit: 16, When: 1, Mask: 0x7f, Values: []uint64{0, 6, 9, 11, 13}},
	},
	"clone": {
		{Arg: 2, Form: Bytes, Size: 4, Limit: 4, AtExit: true, When: 0, Mask: 0x00100000, Values: []uint64{0x00100000}},
		{Arg: 2, Form: Bytes, Size: 4, Limit: 4, AtExit: true, When: 0, Mask: 0x00001000, Values: []uint64{0x00001000}},
	},
	"sendmmsg": {
		{Arg: 1, Form: Bytes, Size: 64, Limit: 64 * MaxElements, Count: CountResult, AtExit: true},
	},
	"ppoll": {
		{Arg: 2, Form: Bytes, Size: 16, Limit: 16, AtExit: true},
	},
	"arch_prctl": {
		{Arg: 1, Form: Bytes, Size: 8, Limit: 8, AtExit: true, When: 0, Mask: 0xffffffff, Values: []uint64{0x1003, 0x1004}},
	},
	"seccomp": {
		{Arg: 2, Form: Bytes, Size: 16, Limit: 16, When: 0, Mask: 0xffffffff, Values: []uint64{1}},
		{Arg: 2, Form: Bytes, Size: 4, Limit: 4, When: 0, Mask: 0xffffffff, Values: []uint64{2}},
	},
}

var (
	// FIONBIO, FIOASYNC, TIOCSPGRP, TIOCSPTLCK
	ioctlGivesInt = []uint64{0x5421, 0x5452, 0x5410, 0x40045431}
	// FIONREAD, TIOCOUTQ, TIOCGPGRP, TIOCGSID, TIOCGPTN
	ioctlFillsInt = []uint64{0x541b, 0x5411, 0x540f, 0x5429, 0x80045430}
	// PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER, PR_GET_TSC
	prctlFillsInt = []uint64{2, 37, 25}
)
