package arguments

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"

	"github.com/fentry-dev/fentry/internal/format"
)

// What is captured of a function can be something else while a program goes on. Threads do not change together, and a call
// can begin before a change and end behind it. So each record says by itself what it is: of one end of a function's calls, no
// two ways to capture it make records of the same number of words. Where they would, words of zeros follow.

// errWays is returned where a record has no room to be told from those of all other ways.
var errWays = errors.New("were recorded in too many other ways before")

// errCounts is returned for captures that do not say how many words they have.
var errCounts = errors.New("are recorded in a way that says less than is needed to change it")

// For is what is known of a call of which so many words were captured at its beginning and at its end; less than 0: nothing was
// captured there.
func (c *Capture) For(entry, exit int) *Capture {
	in, out := c.way(entry, (*Capture).entryWords), c.way(exit, (*Capture).exitWords)
	if in == c && out == c {
		return c
	}
	of := &Capture{}
	if in != nil {
		of.Params, of.EntryWords = in.Params, in.EntryWords
	}
	if out != nil {
		of.Result, of.Errno, of.ExitWords = out.Result, out.Errno, out.ExitWords
	}
	return of
}

// entryWords is how many words are captured at the beginning of a call; there: it is known what they are.
func (c *Capture) entryWords() (n int, there bool) {
	if c == nil { // as a symbol file can have it
		return 0, false
	}
	return c.EntryWords, c.Params != nil
}

// exitWords is the same for the end.
func (c *Capture) exitWords() (n int, there bool) {
	if c == nil {
		return 0, false
	}
	return c.ExitWords, c.Result != nil || c.Errno != nil
}

// way finds the way in which so many words were captured; nil: there is none.
func (c *Capture) way(words int, of func(*Capture) (int, bool)) *Capture {
	n, there := of(c)
	if words < 0 || !there || n == words || n == 0 && len(c.Others) == 0 { // of one end, or of an old trace
		return c
	}
	for _, o := range c.Others {
		if n, there := of(o); there && n == words {
			return o
		}
	}
	return nil
}

// Add adds another way to capture a function's calls, besides which all others stay known, and has it make records of the
// numbers of words that tell. c and more are as readers know them; what more captures is not changed, so whoever runs its
// operations pads them (see [PadWords]). If c has that way already, it gets the numbers that it has there.
func (c *Capture) Add(more *Capture) (atEntry, atExit error) {
	entry := func(a, b *Capture) bool { return reflect.DeepEqual(a.Params, b.Params) }
	exit := func(a, b *Capture) bool {
		return reflect.DeepEqual(a.Result, b.Result) && reflect.DeepEqual(a.Errno, b.Errno)
	}
	atEntry = c.add(more, (*Capture).entryWords, entry, func(to *Capture, n int) {
		to.Params, to.EntryWords, more.EntryWords = more.Params, n, n
	})
	atExit = c.add(more, (*Capture).exitWords, exit, func(to *Capture, n int) {
		to.Result, to.Errno, to.ExitWords, more.ExitWords = more.Result, more.Errno, n, n
	})
	return atEntry, atExit
}

// add does so for one end of calls.
func (c *Capture) add(more *Capture, of func(*Capture) (int, bool), same func(a, b *Capture) bool, set func(to *Capture, n int)) error {
	words, there := of(more)
	if !there {
		return nil
	}
	if _, there := of(c); !there {
		set(c, words)
		return nil
	}
	var taken []int
	for _, o := range slices.Concat([]*Capture{c}, c.Others) {
		n, there := of(o)
		switch {
		case !there:
		case same(o, more):
			set(more, n)
			return nil
		case n == 0 && o.captures(more):
			return errCounts
		default:
			taken = append(taken, n)
		}
	}
	if words == 0 {
		return nil // nothing is known of its values, and there are no records
	}
	n := words
	for slices.Contains(taken, n) {
		n++
	}
	if n > MaxWords {
		return errWays
	}
	to := &Capture{}
	set(to, n)
	c.Others = append(c.Others, to)
	return nil
}

// captures tells whether anything is captured at one of the ends that another one has.
func (c *Capture) captures(at *Capture) bool {
	has := func(v *Value) bool { return v != nil && v.Words > 0 }
	return at.Params != nil && c.Captures() || (at.Result != nil || at.Errno != nil) && (has(c.Result) || has(c.Errno))
}

// PadWords has encoded operations capture so many words in all, with words of zeros behind those that they capture. It returns
// how many of these there are, too.
func PadWords(b []byte, words int) (padded []byte, zeros int, err error) {
	ops, is := int(binary.LittleEndian.Uint16(b[format.CaptureOOps:])), int(binary.LittleEndian.Uint16(b[format.CaptureOWords:]))
	zeros = words - is
	if zeros == 0 {
		return b, 0, nil
	}
	if zeros < 0 || words > MaxWords {
		return nil, 0, errWays
	}
	at := format.CaptureSize
	for at < len(b) && Code(b[at+format.CaptureOpOCode]) <= OpDeref {
		at += format.CaptureOpSize
	}
	var more []byte
	for range zeros {
		var op [format.CaptureOpSize]byte
		op[format.CaptureOpOCode] = byte(OpNothing)
		more = append(more, op[:]...)
	}
	b = slices.Concat(b[:at], more, b[at:])
	binary.LittleEndian.PutUint16(b[format.CaptureOOps:], uint16(ops+zeros))
	binary.LittleEndian.PutUint16(b[format.CaptureOWords:], uint16(words))
	return b, zeros, nil
}
