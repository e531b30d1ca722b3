package arch

// Memory is the bytes that are verified and rewritten: an image being built, or
// the address space of a process. Both methods handle all of p or fail.
type Memory interface {
	ReadAt(p []byte, addr uint64) error
	WriteAt(p []byte, addr uint64) error
}

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

// Ftrace is what ftrace asks of an architecture. Implementations have no state:
// everything is in the site and in memory.
//
// Errors of methods that take a Memory are *Bug; a target that the
// architecture's call cannot reach is one of class Unreachable.
type Ftrace interface {
	// McountInsnSize is the size of a call site in bytes: what is taken off a
	// return address of the site's call to get the site (MCOUNT_INSN_SIZE).
	McountInsnSize() int

	// CallAdjust returns the site that a word of a table of call sites stands for.
	CallAdjust(mem Memory, addr uint64) (uint64, error)

	// MakeNop turns a call to addr into nops. The call is one that MakeCall or
	// ModifyCall wrote, or the compiler's or linker's own.
	MakeNop(mem Memory, site Site, addr uint64) error
	// MakeCall turns nops into a call to addr.
	MakeCall(mem Memory, site Site, addr uint64) error
	// ModifyCall turns a call to old into a call to new.
	ModifyCall(mem Memory, site Site, old, new uint64) error

	// UpdateFtraceFunc makes the call at address call, in a trampoline
	// (ftrace_call, ftrace_regs_call), go to fn, wherever it went before.
	UpdateFtraceFunc(mem Memory, call, fn uint64) error
	// EnableGraphCaller turns the nop at address call, in a trampoline
	// (ftrace_graph_call), into a jump to target (ftrace_graph_caller).
	EnableGraphCaller(mem Memory, call, target uint64) error
	// DisableGraphCaller turns that jump to target back into a nop.
	DisableGraphCaller(mem Memory, call, target uint64) error

	// Prepare verifies c and returns what would be written. It writes nothing.
	Prepare(mem Memory, c Change) (Edit, error)
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
)

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
	return &Bug{Class: class, Action: c.Action, Site: c.Site, Actual: actual, Expected: expected, Target: c.target(), Err: cause}
}

// Edit returns the edit that does c: old is what the site has, new what belongs there.
func (c Change) Edit(old, new []byte) Edit {
	return Edit{Addr: c.Site.Addr, Old: old, New: new, change: c}
}

// Edit is a verified change: memory has Old at Addr, and New belongs there. They have the same length.
type Edit struct {
	Addr     uint64
	Old, New []byte
	change   Change
}

// Change returns the request the edit does.
func (e Edit) Change() Change { return e.change }
