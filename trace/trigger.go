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
)

var triggerNames = [...]string{
	TriggerOn: "traceon", TriggerOff: "traceoff", TriggerFinish: "finish", TriggerStackTrace: "stacktrace",
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
	what := c.dec.note(w.arg).value
	ev.Time = c.t.Clock.Time(c.fl.t)
	ev.Kind, ev.Flags, ev.Count = Trigger, 0, what
	ev.Func, ev.Caller, ev.Dur, ev.Self = w.fn, FuncID{}, 0, 0
	ev.Depth, ev.Stack = len(frames), c.fl.cur.num
	ev.Chain = ev.Chain[:0]
	if what == TriggerStackTrace {
		for i := len(frames) - 1; i >= 0 && len(ev.Chain) < maxChain; i-- {
			ev.Chain = append(ev.Chain, frames[i].fn)
		}
	}
	c.err = c.emit(ev)
	ev.Chain = ev.Chain[:0]
}
