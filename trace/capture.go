package trace

// What calls were made with. A function's arguments follow its entry in a record of words, and what they point to in
// others; the .sym file says what the words are (package arguments). Functions without captures have no such records,
// and traces without captures are read without looking for any.

import (
	"encoding/binary"
	"encoding/json"

	"github.com/fentry-dev/fentry/arguments"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/names"
)

// Captured is what was captured at one end of a call.
type Captured struct {
	Words []uint64
	Data  []Data // memory that words point to, or that led to from there
	// Open: the record was not finished, when the task was killed or the trace was read. Nothing else is known.
	Open bool
}

// Memory is what Data has.
func (c *Captured) Memory() arguments.Memory {
	m := make(arguments.Memory, len(c.Data))
	for i := range c.Data {
		d := &c.Data[i]
		m[i] = arguments.Region{Address: d.Address, Bytes: d.Bytes, Text: d.Flags&DataString != 0,
			Cut: d.Flags&DataCut != 0, Unreadable: d.Flags&DataUnreadable != 0, Values: d.Flags&DataValues != 0}
	}
	return m
}

// Capture returns what an event's function is captured with, in the way in which it was for that event; nil: nothing.
func (t *Trace) Capture(ev *Event) *arguments.Capture {
	id := ev.Func
	if !t.captures || id.ID == 0 || int64(id.Image) >= int64(len(t.cache)) {
		return nil
	}
	k := t.cache[id.Image].get(t, id)
	if k == nil || k.capture == nil {
		return nil
	}
	return k.capture.For(ev.Args.words(), ev.Result.words())
}

// words is how many there are; -1: nothing was captured, or it was not finished.
func (c *Captured) words() int {
	if c == nil || c.Open {
		return -1
	}
	return len(c.Words)
}

// EachValue calls f with the arguments that were captured with an Entry and their names, and with the result that was
// captured with an Exit, which is called [ResultName].
func (t *Trace) EachValue(ev *Event, f func(name string, v *arguments.Value, of *Captured)) {
	c := t.Capture(ev)
	if c == nil {
		return
	}
	if of := ev.Args; of != nil && !of.Open {
		for i := range c.Params {
			f(c.ParamName(i), &c.Params[i], of)
		}
	}
	if of := ev.Result; of != nil && !of.Open && c.Result != nil && ev.Kind == Exit {
		f(ResultName, c.Result, of)
	}
}

// capturesOf returns what a symbol table says of captures; nil: nothing.
func capturesOf(s SymTable) map[uint32]string {
	switch tab := s.(type) {
	case *names.Table:
		return tab.Captures
	case *names.SymFile:
		return tab.Head.Captures
	}
	return nil
}

// newCapture parses what is captured of a function. What cannot be understood is as if it was not said.
func (t *Trace) newCapture(id FuncID) *arguments.Capture {
	if !t.captures || int64(id.Image) >= int64(len(t.syms)) {
		return nil
	}
	text, ok := capturesOf(t.syms[id.Image])[id.ID]
	if !ok {
		return nil
	}
	c := &arguments.Capture{}
	if json.Unmarshal([]byte(text), c) != nil {
		return nil
	}
	return c
}

// captured takes what was captured of the call whose entry or exit the word is; nil: nothing.
func (d *decoder) captured(w *word) *Captured {
	if w.code > wCall || d.at+8 > len(d.win) && !d.more() {
		return nil
	}
	r, ok := format.ParseRecord(uint32(binary.LittleEndian.Uint64(d.win[d.at:]) >> 32))
	if !ok || r.Type != format.RecArgs || r.Exit != (w.code == wExit) {
		return nil
	}
	d.at += 8
	c := &Captured{Open: r.Open}
	left := r.Words
	for ; left > 0 && !r.Open && len(c.Words) < arguments.MaxWords; left-- {
		c.Words = append(c.Words, d.payload())
	}
	for left > 0 && d.skip(&left) {
	}
	if !r.Open {
		d.data(&c.Data)
	}
	return c
}

// EnterWith is Enter with what was captured of the arguments.
func (k *TaskWriter) EnterWith(t uint64, id uint32, words []uint64, data ...Data) {
	k.room(t, 2+dataRoom(words, data))
	k.Enter(t, id)
	k.withData(t, format.RecArgs, false, words, data)
}

// ExitWith is Exit with what was captured of the result.
func (k *TaskWriter) ExitWith(t uint64, id uint32, words []uint64, data ...Data) {
	k.room(t, 2+dataRoom(words, data))
	k.Exit(t, id)
	k.withData(t, format.RecArgs, true, words, data)
}
