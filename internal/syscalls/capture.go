package syscalls

import (
	"slices"
	"sync"
)

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
	return append(list, conditional()[c.Name]...)
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
		st, ok := structures()[s.kind]
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

// conditional are the captures of calls whose arguments depend on others. Where several of them could be told apart by
// size, the largest is read for all: a few bytes too many cost less than a capture more.
var conditional = sync.OnceValue(func() map[string][]Capture {
	return map[string][]Capture{
		"fcntl": {
			when(1, 0xffffffff, fGetLK, fSetLK, fSetLKW, fSetOwnEx, fOFDGetLK, fOFDSetLK, fOFDSetLKW).bytes(2, 32, false),
			when(1, 0xffffffff, fGetLK, fGetOwnEx, fOFDGetLK).bytes(2, 32, true),
		},
		"ioctl": {
			when(1, 0xffffffff, append([]uint64{tcSets, tcSetsW, tcSetsF, tiocSWinsz}, ioctlGivesInt...)...).bytes(2, 36, false),
			when(1, 0xffffffff, append([]uint64{tcGets, tiocGWinsz}, ioctlFillsInt...)...).bytes(2, 36, true),
		},
		"prctl": {
			when(0, 0xffffffff, prSetName).text(1, 16, false),
			when(0, 0xffffffff, prGetName).text(1, 16, true),
			when(0, 0xffffffff, prGetPDeathSig, prGetChildSubreaper, prGetTSC).bytes(1, 4, true),
		},
		"futex": {when(1, 0x7f, futexWait, futexLockPI, futexWaitBitset, futexWaitRequeuePI, futexLockPI2).bytes(3, 16, false)},
		"clone": {
			when(0, cloneParentTID, cloneParentTID).bytes(2, 4, true),
			when(0, clonePIDFD, clonePIDFD).bytes(2, 4, true),
		},
		"sendmmsg":   {{Arg: 1, Form: Bytes, Size: 64, Limit: 64 * MaxElements, Count: CountResult, AtExit: true}},
		"ppoll":      {{Arg: 2, Form: Bytes, Size: 16, Limit: 16, AtExit: true}},
		"arch_prctl": {when(0, 0xffffffff, archGetFS, archGetGS).bytes(1, 8, true)},
		"seccomp":    {when(0, 0xffffffff, 1, 2).bytes(2, 16, false)},
	}
})

// when begins a capture that is for calls whose argument has one of some values.
func when(arg int, mask uint64, values ...uint64) Capture {
	return Capture{When: arg, Mask: mask, Values: values}
}

// bytes makes it one of n bytes.
func (c Capture) bytes(arg, n int, atExit bool) Capture {
	c.Arg, c.Form, c.Size, c.Limit, c.AtExit = arg, Bytes, n, n, atExit
	return c
}

// text makes it one of a string.
func (c Capture) text(arg, limit int, atExit bool) Capture {
	c.Arg, c.Form, c.Limit, c.AtExit = arg, String, limit, atExit
	return c
}

var (
	// FIONBIO, FIOASYNC, TIOCSPGRP, TIOCSPTLCK
	ioctlGivesInt = []uint64{0x5421, 0x5452, 0x5410, 0x40045431}
	// FIONREAD, TIOCOUTQ, TIOCGPGRP, TIOCGSID, TIOCGPTN
	ioctlFillsInt = []uint64{0x541b, 0x5411, 0x540f, 0x5429, 0x80045430}
)
