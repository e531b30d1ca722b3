package arch

import "fmt"

// Site is a place that can call a tracer.
type Site struct {
	Addr uint64 // first byte of its instructions
	Len  int    // bytes that belong to it
	// Slot is the address of the pointer that the site's original call goes through (a GOT entry), or 0 if that call
	// is direct. A compiler's call *mcount@GOTPCREL(%rip) is recognised only if Slot is set.
	Slot uint64
	Name string // of the function, for reports; may be empty
}

// Ftrace is what ftrace asks of an architecture: what calls look like. The operations on top of it, such as
// [MakeNop], [MakeCall] and [Batch], are the same on all architectures. There is no state but the site and memory.
type Ftrace interface {
	// McountInsnSize returns the size of a call in bytes, which subtracted from the return address of a site's call
	// gives the site (MCOUNT_INSN_SIZE).
	McountInsnSize() int

	// CallAdjust returns the site that a word of a table of call sites stands for. The error is a *Bug.
	CallAdjust(mem Memory, addr uint64) (uint64, error)

	// CheckSite returns an error if the site cannot hold a call.
	CheckSite(s Site) error

	// Verify returns nil if actual, the bytes at the site, are what c starts from, else a *Bug.
	Verify(mem Memory, c Change, actual []byte) *Bug

	// Replacement returns the bytes that c leaves at the site. It returns an error if a call cannot reach its target.
	Replacement(c Change) ([]byte, error)
}

// Prepare verifies c and returns the edit it stands for. It writes nothing. The error is a *Bug, of class Unreachable
// if the architecture's call cannot reach the target.
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

// MakeNop turns a call to addr into nops. The call may come from [MakeCall], [ModifyCall], the compiler or the
// linker.
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

// DisableGraphCaller turns the jump that EnableGraphCaller wrote back into a nop.
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
	Init         Action = iota // nothing yet: a table of call sites is being read
	Nop                        // call to Old -> nops
	Call                       // nops -> call to New
	Modify                     // call to Old -> call to New
	Func                       // call to anything -> call to New, in a trampoline
	GraphEnable                // nop -> jump to New, in a trampoline
	GraphDisable               // jump to Old -> nop, in a trampoline
	Rewrite                    // an Edit that comes from no Change
)

var actionNames = [...]string{"init", "nop", "call", "modify", "func", "graph-enable", "graph-disable", "rewrite"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Change is a request to rewrite one site. Old and New are the targets named in the description of its Action.
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

// Bug returns the error for a site at which c cannot be made.
func (c Change) Bug(class Class, actual, expected []byte, cause error) *Bug {
	return &Bug{
		Class: class, Action: c.Action, Site: c.Site, Actual: actual, Expected: expected, Target: c.target(), Err: cause,
	}
}
