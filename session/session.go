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

// Options say what to run and where to write its trace.
type Options struct {
	// Path is the path of the program's file, as passed to execve. See [LookPath].
	Path string
	// Args is the program's argument vector, Args[0] included. Empty: Path alone.
	Args []string
	// Env is its environment. nil: that of this process, as inherited.
	Env []string
	// WorkDir is its working directory; "": that of this process. If WorkDir is set, Path must be absolute.
	WorkDir string
	// Files are its first open files, from descriptor 0. nil: 0 to 2 of this process. Files without close-on-exec are
	// open in the program, too.
	Files []uintptr
	// File identifies the file that the plan was made from: the result of Stat on the open file. If the file at the
	// exec stop is another one (Path is a script or was replaced), it is run untraced. nil: not checked.
	File os.FileInfo

	// Emulator is the command, as separate words, that runs programs of another machine: the program's path and
	// arguments are appended. See [FindEmulator]. Empty: the kernel runs the program.
	Emulator []string

	// Dir is the trace directory; "": fentry.data. An existing trace is renamed to Dir with ".old" appended, unless
	// it is still being written ([ErrRecording]).
	Dir string
	// Buffer is the total size of all chunks in bytes; 0: DefaultBuffer.
	Buffer int64
	// Policy says what the program's runtime does if no chunk is free.
	Policy trace.Policy
	// Flight makes the session a flight recorder; nil: it is none.
	Flight *Flight
	// Compress says whether the recorder compresses events before it writes them.
	Compress Compression
	// Profile means that the runtime keeps counts, and perhaps times, instead of a stream of events. It maps the events file
	// itself, and there is no pool.
	Profile bool
	// ChunkSize is the chunk size of that file in bytes, a power of two; 0: that of other traces.
	ChunkSize int
	// Overhead bounds what tracing adds to the time that the program's threads take without, by switching off functions
	// that are called too often for what they tell: 0.5 adds half of it. 0: nothing is switched off. There is no bound
	// for profiles, without a clock, with trace.PolicyOverwrite and under an emulator.
	Overhead float64
	// OverheadAll switches off functions of every image. Otherwise images whose functions compilers have prepared for
	// tracing keep all: somebody has chosen them.
	OverheadAll bool
	// Switches records when threads were off a processor, if the kernel tells: info.json says why if it does not.
	Switches bool
	// SampleEvery takes the stacks of threads each time that they have run for so long, as the kernel's perf events tell; see
	// [CanSample]. 0: none are.
	SampleEvery time.Duration
	// SamplePartial walks them from stack pointer and program counter alone, as those of blocked threads can be.
	SamplePartial bool
	// Untouched says that nothing is put into programs.
	Untouched bool
	// NoPtrace runs a patched copy without trying ptrace.
	NoPtrace bool

	// Attach records processes that run already, in place of a program: Path, Args and Env are then theirs, for messages and
	// the trace, and Library, Follow and PatchedCopy are not used. nil: a program is started.
	Attach *Attach
	// Keeper is the path of an executable that calls [Keep], with its arguments, if the first one is KeeperName. It is started
	// beside the session, and if this process is killed it writes what is in the buffer to the trace. "": that is lost.
	Keeper string
	// Live is called when the program has begun, or the processes of Attach are recorded, before Run goes on; nil: nobody
	// wants to know. It is not called for profiles.
	Live func(*Live)
	// Pipe is another way to control the session than [Control]; nil: there is none.
	Pipe *ControlPipe
	// Match understands a pattern of names ([Control]), and returns which functions of an image it matches, by local id:
	// none of one that is not known. It can be called concurrently, with what it returns. nil: functions have no names.
	Match func(pattern string) (func(trace.ImageID) ([]uint32, error), error)
	// More plans functions of an image that patterns choose and that have not been planned: whoever controls the session asks
	// for them. nil, without an error: there are none. From then on Match knows the functions of the image that it returns. If
	// More itself is nil, none can be added.
	More func(of trace.ImageID, patterns []string) (*Addition, error)
	// MoreOf does so for a library that a process has mapped and that no plan is of: at is where there is room, as an address of
	// the library. It is there if More is.
	MoreOf func(path string, f *os.File, at uint64, patterns []string) (*Addition, error)
	// First returns which functions of an image plans have switched on (patch.Options.First), by local id, and can be called
	// concurrently; FirstText are the patterns that choose them. nil: all.
	First     func(trace.ImageID) ([]uint32, error)
	FirstText string
	// Doing understands what is to be done at calls, as the settings trigger, arguments and results of [Control] say it. An
	// error in what they say is a *SpecError. nil: that cannot be changed.
	Doing func(setting, spec string) (*Doing, error)
	// Did hears whether all that Doing has been asked for since is done, with what that has returned for images. It returns
	// the images whose symbols say more now. It is there if Doing is.
	Did func(done bool) []trace.ImageID
	// Flat is whether plans begin without frames (patch.Options.Flat), as the tracer function, which [Control] changes; Depth
	// and Threshold are the limits that they have.
	Flat      bool
	Depth     uint32
	Threshold time.Duration

	// For ends the session so long after the program has begun, or the processes of Attach are recorded; 0: nothing does.
	For time.Duration

	// Hurry has this process be the least nice while it attaches and detaches; see osthread.Hurry.
	Hurry bool

	// Prepare returns what to write into the program. session is the path of the pool (in profile mode, of the events
	// file) for the runtime's configuration. If Prepare is nil or returns a nil Memory, the program runs untraced,
	// but programs it starts may be traced ([Result].Empty says that none was).
	Prepare func(session string) (*patch.Memory, error)
	// Whole returns what was put into the program once more, with its places ([patch.Memory.HasPlaces]), if what Prepare has returned
	// has none; nil: it cannot. It is called by whoever needs them, once.
	Whole func() *patch.Memory
	// PatchedCopy writes a patched copy of the program to f. nil: there is none, and a program that cannot be traced
	// by ptrace is not run.
	PatchedCopy func(session string, f *os.File) error
	// Library is asked for each file that the program's dynamic loader opens, f, by the name that the loader has for it,
	// or where that is not known, as of libraries that the running program loads, by its path. What it returns takes the file's place, whatever f is: a patched copy of a library.
	// It must be the same for the same file, and stay open until Run returns. nil: the file stays, or libraries are left
	// alone altogether. Library is not called concurrently.
	Library func(path string, f *os.File) *os.File
	// NoLoader: the program itself has no dynamic loader, or none that matters, so Library is for those that it executes.
	NoLoader bool
	// OnlySwaps: of those, Library is for the ones whose plans say that what they load may swap pieces of its stack.
	OnlySwaps bool
	// Follow says what becomes of programs that the program, or one that it has started, executes. nil: they are traced
	// only if they trace themselves.
	Follow *Follow
	// Symbols writes the .sym file of an image in the trace. It is called once per image, and again when more is captured of
	// its functions (Doing), never concurrently. nil: no files are written.
	Symbols func(im Image, w io.Writer) error

	// Info gives Writer, Tracer and Options of info.json; Run fills in the rest.
	Info trace.Info

	// Logf receives messages for the user, one line each without a newline; nil: they are discarded. It is called
	// from several goroutines, but never concurrently.
	Logf func(format string, args ...any)
}

// A Compression says when a recorder compresses events. The program never waits for it: chunks that come too fast are
// written as they are.
type Compression uint8

const (
	// CompressNone: never.
	CompressNone Compression = iota
	// CompressAuto: when a processor has nothing else to do.
	CompressAuto
	// CompressZstd: whatever else the processors have to do.
	CompressZstd
)

// DefaultDir is the trace directory if Options.Dir is "".
const DefaultDir = tracedir.Default

// ErrRecording is returned if the trace directory is still being written, by another session or by a patched program
// alone.
var ErrRecording = tracedir.ErrRecording

// DefaultBuffer is the size of the pool in bytes if Options.Buffer is 0.
const DefaultBuffer = 64 << 20

// Image is a program image that has announced itself in the trace.
type Image struct {
	trace.Image
	PID int // process that announced it

	exe *os.File // held open since the process asked for that; nil: it is not
}

// Open opens the image's file: through /proc while its process runs that file, which works even if the file has been
// deleted or is in another mount namespace, else by its path. A shared object's is opened by the path that it was
// loaded from. The caller must compare the image id or the build-id.
func (im Image) Open() (*os.File, error) { return im.open() }

// Result describes a session.
type Result struct {
	// Started says that the program ran. If it is false, Run has returned an error.
	Started bool
	// Status says how the program ended, if Ended. Processes that are attached to may end without anybody telling.
	Status syscall.WaitStatus
	Ended  bool
	// Signal is the signal that ended the session before the program ended; 0 if none.
	Signal syscall.Signal

	Events    uint64 // events written to disk
	Lost      uint64 // events lost, for any reason
	Overwrote uint64 // events overwritten by newer ones (trace.PolicyOverwrite)
	Uncounted bool   // more events were lost than Lost says, nobody knows how many; the trace says when
	// SwitchedOff is how many functions were switched off ([Options].Overhead). The trace says which, and when.
	SwitchedOff int
	Samples     uint64 // stacks taken on a timer by the recorder ([Options].SampleEvery)
	// Unfollowed is how often a program did not get an answer in time when it was about to execute another one, or wanted
	// those that it executes to be followed, or could not ask, because it filters its system calls: these are not traced.
	Unfollowed uint32
	// Unloaded is how many files a program's dynamic loader has opened about which it could not ask for the same reason:
	// libraries among them are not traced.
	Unloaded   uint32
	Chunks     uint64
	Compressed uint64 // chunks that were compressed, of Chunks
	BadChunks  uint64 // invalid chunks, which were dropped
	Bytes      int64  // size of the events file
	Tasks      int    // threads that recorded something
	Processes  int
	Images     []trace.Image
	Dir        string // final path of the trace directory; "" if it has been removed, or Empty
	// Empty: the program ran untraced, and started no program that was traced. No trace is made, and an existing one
	// stays where it is.
	Empty bool
	// Unwanted: what there was when the program had ended was not to be kept ([Flight]).Keep. No trace is made.
	Unwanted   bool
	Dumps      []Dump // what a flight recorder wrote meanwhile, and could not write
	Injected   bool   // the program was traced by ptrace at its exec stop
	Copied     bool   // a patched copy was run
	Way        string // how the program was traced and why so, for people
	WriteError error  // why writing the trace stopped early; nil if it did not

	Duration time.Duration // from the program's start to its end
	Setup    time.Duration // time the exec stop took, or for which a process was stopped to attach to it
	Held     time.Duration // the longest time for which a process was stopped to detach from it
	Stays    []string      // processes that go on, or were to be attached to, and have something of the tracer still, and why
	// Overhead is an estimate of the processor time that tracing cost the program: the events made, times what reading
	// the clock takes on this machine and what else is done for an event. 0 if it cannot be told, as for profiles.
	Overhead time.Duration
}
