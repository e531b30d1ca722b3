package trace

// The user-space meaning of what ftrace says of interrupts. A thread that handles a signal is where a processor is in an
// interrupt; blocked signals are interrupts that are off; and a forked child is where little may be done, as in a
// non-maskable interrupt. All that is known of it is what the trace has: signals that came to traced handlers, whose calls
// tell when they have ended, and rt_sigprocmask, if it was recorded. What was so before the trace, or before the window
// that is read, is not known.

// A SignalState is what is known of a thread's signals at an event.
type SignalState struct {
	// Handlers is the number of handlers that are running, one inside the other.
	Handlers int
	// OtherStack: the innermost of them runs on a stack that is not the one it has interrupted.
	OtherStack bool
	// Blocked are the signals that are blocked, bit 0 for signal 1, but for those that are because they are handled.
	Blocked uint64
}

// An openHandler is a handler that is running.
type openHandler struct {
	stack   uint64
	depth   int
	other   bool   // on a stack that is not the one it has interrupted
	signal  uint64 // its bit
	blocked uint64 // where it interrupted the thread
}

// taskSignals is what is known of a task.
type taskSignals struct {
	handlers []openHandler
	blocked  uint64
	coming   *Signal // its handler's call is the next
	from     uint64  // the stack that it has interrupted
	how, set uint64  // of the rt_sigprocmask that has begun
	asked    bool    // one has
}

// maxHandlers bounds what damaged events can make a reader hold.
const maxHandlers = 1 << 10

// WithSignalState returns an emit function for a walk that sets Event.Signals before it calls the one given.
func (t *Trace) WithSignalState(emit func(*Event) error) func(*Event) error {
	tasks := make([]*taskSignals, len(t.Tasks))
	return func(ev *Event) error {
		s := tasks[ev.Task.Index]
		if s == nil {
			s = new(taskSignals)
			tasks[ev.Task.Index] = s
		}
		s.before(t, ev)
		ev.Signals = s.state()
		err := emit(ev)
		ev.Signals = SignalState{}
		s.behind(ev)
		return err
	}
}

func (s *taskSignals) state() SignalState {
	st := SignalState{Handlers: len(s.handlers), Blocked: s.blocked}
	for i := range s.handlers {
		st.OtherStack = s.handlers[i].other
		st.Blocked &^= s.handlers[i].signal
	}
	return st
}

// before takes what is true at an event already.
func (s *taskSignals) before(t *Trace, ev *Event) {
	switch ev.Kind {
	case Entry:
		counts := ev.Flags&(FlagOpen|FlagEntryOnly) == 0 && len(s.handlers) < maxHandlers
		if s.coming != nil && ev.Func == s.coming.Handler && counts {
			h := openHandler{stack: ev.Stack, depth: ev.Depth, other: ev.Stack != s.from, blocked: s.coming.Blocked}
			if n := s.coming.Number; n > 0 && n <= 64 {
				h.signal = 1 << (n - 1)
			}
			s.handlers = append(s.handlers, h)
			s.blocked = h.blocked | h.signal
		}
		s.coming = nil
		s.mask(t, ev)
	case SignalDelivered:
		s.coming, s.from = nil, ev.Stack
		if ev.Signal.Handler.ID != 0 {
			sig := *ev.Signal
			s.coming = &sig
		}
		s.blocked = ev.Signal.Blocked
	case Skipped:
		s.leave(ev.Stack, ev.Depth)
	}
}

// behind takes what an event ends.
func (s *taskSignals) behind(ev *Event) {
	switch ev.Kind {
	case Exit, Unwound, Unfinished:
		s.leave(ev.Stack, ev.Depth)
		if ev.Func.Image == SyscallImage && s.asked {
			s.asked = false
			if ev.Kind == Exit && ev.Sys != nil && ev.Sys.Value == 0 {
				s.apply()
			}
		}
	}
}

// leave ends the handlers whose calls are at a depth of a stack or deeper.
func (s *taskSignals) leave(stack uint64, depth int) {
	for n := len(s.handlers); n > 0; n-- {
		h := s.handlers[n-1]
		if h.stack != stack || h.depth < depth {
			return
		}
		s.blocked = h.blocked
		s.handlers = s.handlers[:n-1]
	}
}

// mask remembers what a system call is to do about the signals that are blocked.
func (s *taskSignals) mask(t *Trace, ev *Event) {
	if ev.Func.Image != SyscallImage {
		return
	}
	s.asked = false
	if ev.Sys == nil || len(ev.Sys.Args) < 2 || t.Func(ev.Func).Name != "sys_rt_sigprocmask" {
		return
	}
	for _, d := range ev.Sys.Data {
		if d.Arg == 1 && len(d.Bytes) == 8 {
			s.how, s.asked, s.set = ev.Sys.Args[0], true, 0
			for i := range d.Bytes {
				s.set |= uint64(d.Bytes[i]) << (8 * i)
			}
		}
	}
}

// apply does it.
func (s *taskSignals) apply() {
	const block, unblock, set = 0, 1, 2
	switch s.how {
	case block:
		s.blocked |= s.set
	case unblock:
		s.blocked &^= s.set
	case set:
		s.blocked = s.set
	}
}
