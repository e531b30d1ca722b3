//go:build linux && !amd64

package tracee

import (
	"errors"
	"runtime"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Attachment is a plan in a process that runs.
type Attachment struct {
	Stopped time.Duration // the longest time for which its threads were stopped
	Busy    []arch.Edit   // what was not changed because a thread was there
	Changed []arch.Edit   // ... because the program has changed it

	NoLoader, NoExec error // why later libraries, and programs that are executed, are not seen
}

// A TakenError says that something is where a plan's memory was to be.
type TakenError struct {
	Room uint64 // where there is room, as an address of the program
	error
}

// ErrStays: what was added to a process is still there.
var ErrStays = errors.New("its code stays in the process")

// ErrOther: the process runs another program by now.
var ErrOther = errors.New("it runs another program")

var errNoAttach = errors.New("not on " + runtime.GOARCH + " yet")

// ErrExecuted: the process has executed another program since it was looked at.
var ErrExecuted = errors.New("it has executed another program meanwhile")

// A Program is what a process runs.
type Program struct{}

// OpenProgram opens what a process runs.
func OpenProgram(int) (*Program, error) { return nil, errNoAttach }

// Close closes it.
func (*Program) Close() {}

// Executed tells whether the process runs another program by now.
func (*Program) Executed() bool { return false }

// ExecutedBy tells whether it does, as a process could not be attached to.
func (*Program) ExecutedBy(error) bool { return false }

// AwaitLoaded waits for its libraries.
func (*Program) AwaitLoaded(time.Duration) {}

// CheckAttach returns an error for a process that cannot be attached to.
func CheckAttach(int) error { return errNoAttach }

// CanLeadUnwinders returns an error if nothing leads unwinders of a process to what is added to it.
func CanLeadUnwinders(int) error { return errNoAttach }

// A Target is a process and what is to be put into it.
type Target struct {
	PID       int
	Plan      *patch.Memory
	Libraries func([]*Library)
	Execs     *ExecHooks
	Pool      int
	Undo      func()
	Program   *Program
}

// Attach puts a plan into a process that runs.
func Attach(Target) (*Attachment, error) { return nil, errNoAttach }

// Left tells whether an error of Attach says that something of a tracer can be in the process still.
func Left(error) bool { return false }

// Release takes a tracer out of a process whose recorder has ended without doing so.
func Release(int) (time.Duration, error) { return 0, errNoAttach }

// BufferOf is the buffer of the tracer in a process.
func BufferOf(int) (f procfs.SharedFile, ok bool) { return f, false }

// Steps are what a process does itself that comes to the runtime.
type Steps interface {
	Map(at, size uint64, prot int) error
	Call(routine uint64) (uint64, error)
	Wait() error
}

// Loaded looks at the libraries of a process.
func (a *Attachment) Loaded(int, func([]*Library), Steps) error { return errNoAttach }

// Detach takes it out again.
func (a *Attachment) Detach(int) (time.Duration, error) { return 0, errNoAttach }

// Injected are plans of a process that were put into its program.
func Injected(int, ...Plan) (*Attachment, error) { return nil, errNoAttach }

// Add puts a plan of more functions of its program into a process.
func (a *Attachment) Add(int, Plan) ([]arch.Edit, error) { return nil, errNoAttach }

// Again changes a library once more that is loaded again.
func (a *Attachment) Again(int, Plan) error { return errNoAttach }

// Lacks tells whether a process has a library, and not what was added to it.
func (r *Runtime) Lacks(uint64, string, []Plan) (bool, *Plan) { return false, nil }

// In tells how many of the images that were attached to are in a process.
func (a *Attachment) In(int) int { return 0 }

// A Plan is one of an image of a process.
type Plan struct {
	*patch.Memory
	In string
}

// Libraries are the keys of libraries that plans were put into, by image.
func (a *Attachment) Libraries() map[uint64]string { return nil }

// Within are the images that came with libraries.
func (r *Runtime) Within([]*Library) map[uint64]string { return nil }

// MappedLibraries are the libraries of a process.
func MappedLibraries(int) ([]*Library, error) { return nil, errNoAttach }

// Has tells whether a process has an image.
func (r *Runtime) Has(uint64) bool { return false }

// Settle has the sites of a process be what its functions' switches say.
func (a *Attachment) Settle(int, int) (Settled, error) { return Settled{}, errNoAttach }

// Rest has a process run its own code.
func (a *Attachment) Rest(int) error { return errNoAttach }

// Withdraw takes out of a process what Injected has found in it.
func (a *Attachment) Withdraw(int) (time.Duration, error) { return 0, errNoAttach }

// whileStopped does something. Nobody is stopped for it.
func (r *Runtime) whileStopped(do func() error) error { return do() }

// Limited tells whether a process's runtime has been told of limits.
func (r *Runtime) Limited() bool { return false }

// Flat tells whether its calls are recorded without frames.
func (r *Runtime) Flat() bool { return false }

// Limit limits what is recorded of a process.
func (r *Runtime) Limit(Limits) error {
	return errors.New("limits stay as they are on " + runtime.GOARCH)
}
