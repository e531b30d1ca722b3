package trace

import (
	"fmt"

	"github.com/fentry-dev/fentry/internal/format"
)

// What is done at calls of functions because somebody asked for it, when the program was recorded, is in the events
// Trigger. What is said of tracing holds for all threads of the process.

// Values of a Trigger's Count.
const (
	TriggerOn         = format.TriggerOn         // tracing goes on
	TriggerOff        = format.TriggerOff        // tracing pauses: calls that begin now are missing, in all threads
	TriggerFinish     = format.TriggerFinish     // the recording ends
	TriggerStackTrace = format.TriggerStacktrace // the calls that are open were asked for
	TriggerSnapshot   = format.TriggerSnapshot   // a flight recorder was asked to write what it has
)

var triggerNames = [...]string{
	TriggerOn: "traceon", TriggerOff: "traceoff", TriggerFinish: "finish", TriggerStackTrace: "stacktrace",
	TriggerSnapshot: "snapshot",
}

// TriggerName is what a Trigger's Count says, as users ask for it.
func TriggerName(count uint64) string {
	if count < uint64(len(triggerNames)) && triggerNames[count] != "" {
		return triggerNames[count]
	}
	return fmt.Sprintf("trigger(%d)", count)
}

// maxChain is how many open calls a stack trace has.
const maxChain = 1000

// trigger emits the event of a word.
func (c *cursor) trigger(w *word) {
	if c.emit == nil || c.err != nil {
		return
	}
	ev, frames := &c.ev, c.fl.cur.frames
	value := c.dec.note(w.arg).value
	what, ended := uint64(uint32(value)), value>>32 == 1
	ev.Time = c.t.Clock.Time(c.fl.t)
	ev.Kind, ev.Flags, ev.Count = Trigger, 0, what
	ev.Func, ev.Caller, ev.Dur, ev.Self = w.fn, FuncID{}, 0, 0
	ev.Depth, ev.Stack = len(frames), c.fl.cur.num
	if n := len(frames); ended && n > 0 && frames[n-1].fn == w.fn && c.fl.t > frames[n-1].start {
		ev.Dur = c.t.Clock.Span(c.fl.t - frames[n-1].start)
	}
	ev.Chain = ev.Chain[:0]
	if what == TriggerStackTrace {
		for i := len(frames) - 1; i >= 0 && len(ev.Chain) < maxChain; i-- {
			ev.Chain = append(ev.Chain, frames[i].fn)
		}
	}
	c.err = c.emit(ev)
	ev.Chain = ev.Chain[:0]
}
