package patch

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/record"
)

// Tracer says what the runtime records, in ftrace's words.
type Tracer uint8

const (
	FunctionGraph Tracer = format.ModeGraph    // entries and exits
	Function      Tracer = format.ModeFunction // entries only
	Profile       Tracer = format.ModeProfile  // counts and times per function, no stream of events
	Count         Tracer = format.ModeCount    // counts per function, no times and no stream of events
)

// Tracers returns the names of all tracers, by their numbers.
func Tracers() []string { return format.Tracers() }

func (t Tracer) String() string {
	if names := Tracers(); int(t) < len(names) {
		return names[t]
	}
	return fmt.Sprintf("Tracer(%d)", uint8(t))
}

// ChunkSize is the size in bytes of the chunks of a trace that the runtime writes to its file even under a recorder; 0:
// the tracer has events, which the recorder writes.
func (t Tracer) ChunkSize() int {
	switch t {
	case Profile:
		return format.ChunkSize
	case Count:
		return format.CountChunkSize
	}
	return 0
}

// ParseTracer is the inverse of [Tracer.String].
func ParseTracer(s string) (Tracer, error) {
	if i := slices.Index(Tracers(), s); i >= 0 {
		return Tracer(i), nil
	}
	return 0, fmt.Errorf("unknown tracer %q; there are %s", s, strings.Join(Tracers(), ", "))
}

// Target says where a plan will be applied, which determines the addresses of additions.
type Target uint8

const (
	// File: a new ELF file. The added segment follows everything loaded.
	File Target = iota
	// Process: a process stopped at exec. The added memory is placed after the image, out of the way of the heap.
	Process
)

// SyscallSet is a set of system calls by number. The zero value is that of all of them, those that have no name yet
// included.
type SyscallSet [format.SyscallNumbers / 64]uint64

// SyscallSets has a set for each machine, as their numbers differ. Of a machine that has none all system calls are in it.
type SyscallSets [2]struct {
	machine elf.Machine
	set     SyscallSet
}

// Set sets the set of a machine. There is room for those whose programs are traced.
func (s *SyscallSets) Set(m elf.Machine, set SyscallSet) {
	for i := range s {
		if s[i].machine == m || s[i].machine == elf.EM_NONE {
			s[i].machine, s[i].set = m, set
			return
		}
	}
}

// Of returns the set of a machine.
func (s *SyscallSets) Of(m elf.Machine) SyscallSet {
	for i := range s {
		if s[i].machine == m {
			return s[i].set
		}
	}
	return SyscallSet{}
}

// EverySyscall is a set of all system calls, by their numbers.
func EverySyscall() (s SyscallSet) {
	for i := range s {
		s[i] = ^uint64(0)
	}
	return s
}

// SyscallBytes is the size of a SyscallSet in bytes.
const SyscallBytes = format.SyscallNumbers / 8

// NoSyscall is a number that no machine has given to a system call, for sets that would be empty.
const NoSyscall = format.SyscallNumbers - 1

// Add adds a system call; one with a number that is too large is never in a set.
func (s *SyscallSet) Add(number uint64) {
	if number < format.SyscallNumbers {
		s[number/64] |= 1 << (number % 64)
	}
}

// All reports whether all system calls are in the set.
func (s *SyscallSet) All() bool { return *s == SyscallSet{} }

// Has reports whether a system call is in the set.
func (s *SyscallSet) Has(number uint64) bool {
	return s.All() || number < format.SyscallNumbers && s[number/64]>>(number%64)&1 != 0
}

// chosen reports whether a system call may be recorded: its number, if it is known, is in the set.
func (s *SyscallSet) chosen(c *record.Syscall) bool { return c.Number < 0 || s.Has(uint64(c.Number)) }

// Options of [New]. The zero value plans a file that traces every traceable
// function with the function_graph tracer.
type Options struct {
	Tracer Tracer
	Target Target

	// Select chooses the functions to trace; nil: all.
	Select *record.Filter
	// First is which of the functions that Select chooses are recorded from the beginning; nil: all. Those that are not are
	// off until a recorder switches them on, and if something is to be done at their calls, as if Select did not choose them.
	First *record.Filter
	// NoFunctions leaves out all functions, whatever Select says: only system calls are recorded.
	NoFunctions bool
	// Without is functions that are not traced whatever Select says; nil: none.
	Without *record.LeftOut
	// MinSize is the size in bytes below which functions are not traced, as if Select did not choose them. Those of
	// unknown size are.
	MinSize uint64
	// Roots restricts recording to calls inside these functions; nil: no restriction.
	Roots *record.Filter
	// RootsElsewhere: other images of the process can have roots, so it is no error if this one has none. So it is with Copy and
	// Bare.
	RootsElsewhere bool
	// Hide leaves out calls of these functions with everything inside them; nil: none. They are traced, so that their
	// calls are noticed, even if Select does not choose them.
	Hide *record.Filter
	// Errno makes the runtime find errno, for actions that capture it.
	Errno bool
	// Actions are what is done at calls of some functions beside recording them; nil: nothing. Not for Profile and Count.
	Actions *Actions
	// Depth is the maximum depth of nested traced calls to record; 0: unlimited.
	Depth uint32
	// Threshold is the duration below which calls leave no events; 0: all calls do.
	Threshold time.Duration

	// NoClock has events carry sequence numbers in place of times: a call costs a quarter, and the trace says what called
	// what and in which order. Only for FunctionGraph without Roots, Hide, Depth and
	// Threshold.
	NoClock bool

	// Flat has FunctionGraph begin as Function does, with calls that end where they begin, until the recorder wants them
	// with what is inside. Not with NoClock, Roots, Hide, Depth and Threshold, and for x86-64 only.
	Flat bool

	// Syscalls are the image's system calls, as [record.Syscalls] finds them, which are recorded if the tracer has events;
	// nil: none. With them a plan need not trace any function.
	Syscalls *[]record.Syscall

	// Execs are the same system calls, of a Go program whose own code is to tell the recorder what it is about to execute; nil:
	// it does not. None is recorded for that.
	Execs *[]record.Syscall

	// Only is the system calls that are recorded; the zero value: all.
	Only SyscallSets
	// StackEvery has the stack walked at the first event of a thread after it has run for so long; 0: it is not. At
	// system calls, all that are recorded take the slow path then.
	StackEvery time.Duration
	// StackAt is the recorded system calls at which the stack is walked; the zero value: none.
	StackAt SyscallSets

	// Copy is for shared objects whose patched file stands in for another one while they are recorded: the recorder knows
	// their names by the plan's ImageID, so the runtime need not find out which file it is in.
	Copy bool

	// Unloads is for shared objects that never are the first image of a process to be traced: dlclose unloads the patched
	// file as it does the original. Without it, it stays loaded.
	Unloads bool

	// Keep leaves the profiling calls of functions that are not traced as they are. By default they become nops and
	// cost the program nothing. It is refused if they call a tracer that keeps return addresses itself.
	Keep bool

	// Running makes a plan for a process that runs already ([Memory].Running).
	Running bool
	// Unwinders is what is known of who unwinds the stacks of such a process.
	Unwinders Unwinders
	// At is where in such a process there is room for what is added to the image, as an address of that. 0: behind it, out
	// of the way of the heap of most programs.
	At uint64

	// Addition makes a plan of more functions of an image that runs already, in place of those that Select chooses: they are
	// off until a recorder switches them on. It is for Running; nil: nobody has put another plan into the image.
	Addition *Addition

	// Bare makes a plan for a process even if no function is to be traced: it carries the runtime alone, which follows what
	// the process executes.
	Bare bool

	// Overlay allows data after what the file's headers describe. Additions follow them, so a program that looks for
	// them from the end of its file (a self-extracting archive) will not find them.
	Overlay bool

	Session string // path of the recorder's pool; "" in files
	Dir     string // trace directory of a program that runs alone; "": fentry.data
	Policy  uint32 // what to do when buffers are full: 0 wait, 1 drop, 2 overwrite
	Path    string // path of the image, for people and for patterns; recorded in the trace
}

// Chosen is what chooses the functions that are recorded from the beginning; nil: all are.
func (o *Options) Chosen() *record.Filter {
	if o.First != nil {
		return o.First
	}
	return o.Select
}

// leavesOut reports whether Without or MinSize leaves a function out, in an image with the given build-id in hex digits.
func (o *Options) leavesOut(s *record.Site, buildID string) bool {
	small := s.Size != 0 && s.Size < o.MinSize && s.Kind != record.KindLibCall
	return small || o.Without.Has(buildID, o.Path, s.Func)
}

// selective reports whether an option decides at run time which calls are recorded: frames then keep times and depths.
func (o *Options) selective() bool {
	return o.Depth != 0 || o.Threshold != 0 || o.Roots != nil || o.Hide != nil || o.Actions.selective()
}

// checkFlat returns an error for Flat where it cannot be.
func (o *Options) checkFlat(machine elf.Machine) error {
	switch {
	case !o.Flat:
		return nil
	case machine != elf.EM_X86_64:
		return errors.New("a recording that began with function can become function_graph on x86-64 only")
	case o.Tracer != FunctionGraph || o.NoClock || o.selective():
		return errors.New("a recording that began with function can become function_graph if it has a clock, and no roots, functions " +
			"left out, depth or threshold at its beginning")
	}
	return nil
}

// hidden returns what says whether calls of a function are left out with everything inside them.
func (o *Options) hidden() func(s *record.Site) bool {
	if o.Hide == nil || o.Tracer != FunctionGraph {
		return func(*record.Site) bool { return false }
	}
	return o.Hide.In(o.Path).MatchSite
}
