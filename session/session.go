//go:build linux

package session

import (
	"encoding/binary"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/tracedir"
	"github.com/fentry-dev/fentry/trace"
)

var le = binary.LittleEndian

// Options say what to run and where its trace goes.
type Options struct {
	// Path of the program's file, as it is given to execve. See [LookPath].
	Path string
	// Args is the program's argument vector, Args[0] included. Empty: Path alone.
	Args []string
	// Env is its environment. nil: this process's, as it was inherited.
	Env []string
	// WorkDir is its working directory; "": this process's. Path must be absolute
	// then.
	WorkDir string
	// Files are its first open files, from descriptor 0. nil: 0 to 2 of this process.
	// Files that are not closed on exec are open in the program, too.
	Files []uintptr
	// File identifies the file the plan was made from: the result of Stat on the
	// open file that was read. Another file at the exec stop (Path is a script,
	// or was replaced) is run untraced. nil: not checked.
	File os.FileInfo

	// Emulator is the command, in words, that runs the program, for programs of
	// another machine: path and arguments are put behind it. See [FindEmulator].
	// Empty: the kernel runs the program.
	Emulator []string

	// Dir is the trace directory; "": fentry.data. A trace that is there already
	// is renamed to Dir with ".old" appended, unless it is still being written
	// ([ErrRecording]).
	Dir string
	// Buffer is the size in bytes of all chunks together; 0: DefaultBuffer.
	Buffer int64
	// Policy says what the program's runtime does when no chunk is free.
	Policy trace.Policy
	// Profile: the runtime keeps counts and times instead of a stream of events.
	// It maps the events file itself and there is no pool.
	Profile bool
	// NoPtrace runs a patched copy at once.
	NoPtrace bool

	// Prepare makes what is written into the program. session is the path of the
	// pool (or in profile mode of the events file) for the runtime's
	// configuration. nil, and a nil Memory: the program runs untraced, but
	// programs it starts may be traced.
	Prepare func(session string) (*patch.Memory, error)
	// PatchedCopy writes a patched copy of the program. nil: there is none, and
	// a program that cannot be traced by ptrace is not run.
	PatchedCopy func(session string, f *os.File) error
	// Symbols writes the .sym file of an image that is seen in the trace. It is
	// called once an image, not concurrently with itself. nil: no files.
	Symbols func(im Image, w io.Writer) error

	// Info is the start of info.json: Writer, Tracer and Options are taken from
	// it, Run fills in the rest.
	Info trace.Info

	// Logf gets messages for the user, one line each without a newline; nil: none.
	// It is called from several goroutines, not at the same time.
	Logf func(format string, args ...any)
}

// DefaultDir is the trace directory when Options.Dir is "".
const DefaultDir = tracedir.Default

// ErrRecording: the trace directory is still being written, by another session or
// by a patched program alone.
var ErrRecording = tracedir.ErrRecording

// DefaultBuffer is the size of the pool when Options.Buffer is 0.
const DefaultBuffer = 64 << 20

// Image is a program image that announced itself in the trace.
type Image struct {
	trace.Image
	PID int // process that announced it

	exe *os.File // held open since the process asked for that; nil: it is not
}

// Open opens the image's file: through /proc while its process runs that file,
// which also finds it when it has been deleted or is in another mount namespace,
// else by its path. The caller must compare the build-id.
func (im Image) Open() (*os.File, error) { return im.open() }

// Result says how a session went.
type Result struct {
	// Started: the program ran. Without it Run returned an error.
	Started bool
	// Status is how the program ended, if Ended.
	Status syscall.WaitStatus
	Ended  bool
	// Signal is the signal that ended the session before the program ended; 0: none.
	Signal syscall.Signal

	Events     uint64 // events written to disk
	Lost       uint64 // events lost, with every reason
	Overwrote  uint64 // events given up for newer ones (trace.PolicyOverwrite)
	Chunks     uint64
	BadChunks  uint64 // chunks that made no sense and were dropped
	Bytes      int64  // size of the events file
	Tasks      int    // threads that recorded something
	Processes  int
	Images     []trace.Image
	Dir        string // where the trace directory is in the end; "": it has been removed
	Injected   bool   // the program was traced by ptrace at its exec stop
	Copied     bool   // a patched copy was run
	WriteError error  // why writing the trace stopped; nil when it did not

	Duration time.Duration // from the program's start to its end
	Setup    time.Duration // time the exec stop took
}
