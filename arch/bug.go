package arch

import (
	"fmt"
	"strings"
)

// Class says at which step a site failed. Error names in the text of a Class are the kernel's.
type Class uint8

const (
	Fault       Class = iota // EFAULT: the site could not be read
	Mismatch                 // EINVAL: the bytes at the site are not the expected ones
	WriteFault               // EPERM: the site could not be written
	Unreachable              // the instruction to write cannot reach its target, or does not fit
)

func (c Class) String() string {
	switch c {
	case Fault:
		return "EFAULT"
	case Mismatch:
		return "EINVAL"
	case WriteFault:
		return "EPERM"
	case Unreachable:
		return "ERANGE"
	}
	return fmt.Sprintf("Class(%d)", uint8(c))
}

// headline is the report's line for the class.
func (c Class) headline() string {
	switch c {
	case Fault:
		return "ftrace faulted on modifying"
	case Mismatch, Unreachable:
		return "ftrace failed to modify"
	case WriteFault:
		return "ftrace faulted on writing"
	}
	return "ftrace faulted on unknown error"
}

func (a Action) phase() string {
	switch a {
	case Init:
		return "Initializing ftrace call sites"
	case Nop:
		return "Setting ftrace call site to NOP"
	case Call:
		return "Setting ftrace call site to call ftrace function"
	case Modify:
		return "Updating ftrace call site to call a different ftrace function"
	case Func:
		return "Updating the call of the ftrace trampoline"
	case GraphEnable:
		return "Enabling the graph caller of the ftrace trampoline"
	case GraphDisable:
		return "Disabling the graph caller of the ftrace trampoline"
	case Rewrite:
		return "Rewriting code"
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// A Bug is a site that cannot be changed, in the terms of the kernel's "ftrace
// bug" report. Nothing has been written at the site. Error is one line; %+v
// formats the whole report.
type Bug struct {
	Class    Class
	Action   Action // what was being done
	Site     Site
	Actual   []byte // bytes found at the site, if it could be read
	Expected []byte // bytes it should have begun with, if only one form was expected
	Target   uint64 // where the call was to go, 0 if none
	Err      error  // error of reading, writing or encoding, if that was the cause
}

// Error returns one line: address and function, what was being done, class, bytes, cause.
func (b *Bug) Error() string {
	var s strings.Builder
	s.WriteString(b.where())
	phase := b.Action.phase()
	s.WriteString(": " + strings.ToLower(phase[:1]) + phase[1:] + ": " + b.Class.String())
	if b.Class == Mismatch {
		s.WriteString(": actual " + colons(b.Actual))
		if len(b.Expected) > 0 {
			s.WriteString(", expected " + colons(b.Expected))
		}
	}
	if b.Err != nil {
		s.WriteString(": " + b.Err.Error())
	}
	return s.String()
}

func (b *Bug) Unwrap() error { return b.Err }

// Report returns the whole report, several lines without a final newline.
func (b *Bug) Report() string {
	var s strings.Builder
	fmt.Fprintf(&s, "------------[ ftrace bug ]------------\n%s\n[<%016x>] %s\n",
		b.Class.headline(), b.Site.Addr, b.name())
	if b.Class == Mismatch {
		fmt.Fprintf(&s, " actual:   %s\n", colons(b.Actual))
		if len(b.Expected) > 0 {
			fmt.Fprintf(&s, " expected: %s\n", colons(b.Expected))
		}
	}
	if b.Err != nil {
		fmt.Fprintf(&s, " cause:    %v\n", b.Err)
	}
	s.WriteString(b.Action.phase())
	if b.Target != 0 {
		fmt.Fprintf(&s, "\n expected tramp: %x", b.Target)
	}
	return s.String()
}

// Format implements fmt.Formatter: Report for %+v, Error for everything else.
func (b *Bug) Format(f fmt.State, verb rune) {
	text := b.Error()
	if verb == 'v' && f.Flag('+') {
		text = b.Report()
	}
	if verb == 'q' {
		text = fmt.Sprintf("%q", text)
	}
	fmt.Fprint(f, text)
}

func (b *Bug) where() string {
	if b.Site.Name == "" {
		return fmt.Sprintf("%#x", b.Site.Addr)
	}
	return fmt.Sprintf("%#x (%s)", b.Site.Addr, b.Site.Name)
}

func (b *Bug) name() string {
	if b.Site.Name == "" {
		return "?"
	}
	return b.Site.Name
}

func colons(b []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% x", b), " ", ":")
}
