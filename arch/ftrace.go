package arch

import "fmt"

// Site is a place that can call a tracer.
type Site struct {
	Addr uint64 // first byte of its instructions
	Len  int    // bytes that belong to it
	// Slot is the address of the pointer that the site's original call goes
	// through (a GOT entry), or 0 if that call is direct. A call that a
	// compiler made as call *mcount@GOTPCREL(%rip) is only recognised with it.
	Slot uint64
	Name string // of the function, for reports; may be empty
}

// Ftrace is what ftrace asks of an architecture: what calls look like. What is done with that is the same on
// all of them: [MakeNop], [MakeCall] and their like, and [Batch]. Everything is in the site and in memory.
type Ftrace interface {
	// McountInsnSize is the size of a call in bytes: what is taken off a
	// return address of the site's call to get the site (MCOUNT_INSN_SIZE).
	McountInsnSize() int

	// CallAdjust returns the site that a word of a table of call sites stands for. The error is a *Bug.
	CallAdjust(mem Memory, addr uint64) (uint64, error)

	// CheckSite returns an error for a site that can have no call.
	CheckSite(s Site) error

	// Verify reports whether a site with these bytes has what c starts from. It returns nil if so, else a *Bug.
	Verify(mem Memory, c Change, actual []byte) *Bug

	// Replacement encodes what c leaves at the site. An error says that a call cannot reach its target.
	Replacement(c Change) ([]byte, error)
}

// Prepare verifies c and returns what would be written. It writes nothing. The error is a *Bug; a target that the
// architecture's call cannot reach is one of class Unreachable.
func Prepare(f Ftrace, mem Memory, c Change) (Edit, error) {
	if err := f.CheckSite(c.Site); err != nil {
		return Edit{}, c.Bug(Unreachable, nil, nil, err)
	}
	actual := make([]byte, c.Site.Len)
	if err := mem.ReadAt(actual, c.Site.Addr); err != nil {
		return Edit{}, c.Bug(Fault, nil, nil, err)
	}
	if bug := f.Verify(mem, c, actual); bug != nil {
		return Edit{}, bug
	}
	next, err := f.Replacement(c)
	if err != nil {
		return Edit{}, c.Bug(Unreachable, actual, nil, err)
	}
	return Edit{Addr: c.Site.Addr, Old: actual, New: next, Func: c.Site.Name, Reason: c.Action.String(), change: &c}, nil
}

// MakeNop turns a call to addr into nops. The call is one that [MakeCall] or
// [ModifyCall] wrote, or the compiler's or linker's own.
func MakeNop(f Ftrace, mem Memory, site Site, addr uint64) error {
	return Do(f, mem, Change{Action: Nop, Site: site, Old: addr})
}

// MakeCall turns nops into a call to addr.
func MakeCall(f Ftrace, mem Memory, site Site, addr uint64) error {
	return Do(f, mem, Change{Action: Call, Site: site, New: addr})
}

// ModifyCall turns a call to old into a call to new.
func ModifyCall(f Ftrace, mem Memory, site Site, old, new uint64) error {
	return Do(f, mem, Change{Action: Modify, Site: site, Old: old, New: new})
}

// UpdateFtraceFunc makes the call at address call, in a trampoline
// (ftrace_call, ftrace_regs_call), go to fn, wherever it went before.
func UpdateFtraceFunc(f Ftrace, mem Memory, call, fn uint64) error {
	return Do(f, mem, Change{Action: Func, Site: trampoline(f, "ftrace_call", call), New: fn})
}

// EnableGraphCaller turns the nop at address call, in a trampoline
// (ftrace_graph_call), into a jump to target (ftrace_graph_caller).
func EnableGraphCaller(f Ftrace, mem Memory, call, target uint64) error {
	return Do(f, mem, Change{Action: GraphEnable, Site: trampoline(f, "ftrace_graph_call", call), New: target})
}

// DisableGraphCaller turns that jump to target back into a nop.
func DisableGraphCaller(f Ftrace, mem Memory, call, target uint64) error {
	return Do(f, mem, Change{Action: GraphDisable, Site: trampoline(f, "ftrace_graph_call", call), Old: target})
}

// trampoline is the site of a call or jump in a trampoline. They have the same size.
func trampoline(f Ftrace, name string, call uint64) Site {
	return Site{Addr: call, Len: f.McountInsnSize(), Name: name}
}

// Action is what a Change does.
type Action uint8

const (
	Init         Action = iota // nothing yet: looking at a table of call sites
	Nop                        // call to Old -> nops
	Call                       // nops -> call to New
	Modify                     // call to Old -> call to New
	Func                       // call to anything -> call to New, in a trampoline
	GraphEnable                // nop -> jump to New, in a trampoline
	GraphDisable               // jump to Old -> nop, in a trampoline
	Rewrite                    // what an Edit says that comes from no Change
)

var actionNames = [...]string{"init", "nop", "call", "modify", "func", "graph-enable", "graph-disable", "rewrite"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Change is a request to rewrite one site. Old and New are the targets its Action speaks of.
type Change struct {
	Action   Action
	Site     Site
	Old, New uint64
}

// target is what a report names as the trampoline.
func (c Change) target() uint64 {
	switch c.Action {
	case Call, Modify, Func, GraphEnable:
		return c.New
	}
	return c.Old
}

// Bug returns the error for a site that c cannot be done at.
func (c Change) Bug(class Class, actual, expected []byte, cause error) *Bug {
	return &Bug{
		Class: class, Action: c.Action, Site: c.Site, Actual: actual, Expected: expected, Target: c.target(), Err: cause,
	}
}
