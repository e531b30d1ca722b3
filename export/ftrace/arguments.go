package ftrace

import "github.com/fentry-dev/fentry/trace"

// Arguments and results of functions, where they were captured, stand where C has them: f("abc", 3) = 7.

// arguments appends what was captured of a call's arguments, between parentheses.
func (o *output) arguments(b []byte, ev *trace.Event) []byte {
	b = append(b, '(')
	switch c := o.t.Capture(ev); {
	case c == nil:
	case ev.Args == nil && !c.Captures(): // nothing can be
		b = c.AppendArguments(b, nil, nil)
	case ev.Args == nil:
	case ev.Args.Open:
		b = append(b, '?')
	default:
		b = c.AppendArguments(b, ev.Args.Words, ev.Args.Memory())
	}
	return append(b, ')')
}

// result appends what was captured of a call's result.
func (o *output) result(b []byte, ev *trace.Event) []byte {
	c := o.t.Capture(ev)
	if c == nil || c.Result == nil || ev.Result == nil && c.Result.Words > 0 || ev.Kind != trace.Entry && ev.Kind != trace.Exit {
		return b
	}
	b = append(b, " = "...)
	if ev.Result == nil { // nothing can be
		return c.Result.AppendText(b, nil, nil)
	}
	if ev.Result.Open {
		return append(b, '?')
	}
	return c.AppendResult(b, ev.Result.Words, ev.Result.Memory())
}
