package stub

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/internal/format"
)

// What the runtime is told is in two structures, whose layout is written down once, in
// internal/spec, for Go, C and assembly: what the process is to do, and what an image has.
// They are apart because a process has one of the first and, with guests, several of the
// second, and because the second stays true wherever the image is used again.

// Sizes of the runtime's symbols fentry_config and fentry_image in bytes.
const (
	ConfigSize = format.ConfigSize
	ImageSize  = format.ImageSize
)

// Values of Config.Mode: the tracer.
const (
	ModeGraph    = format.ModeGraph    // function_graph: entries and exits
	ModeFunction = format.ModeFunction // function: entries
	ModeProfile  = format.ModeProfile  // counts and times of functions, no events
	ModeCount    = format.ModeCount    // counts of functions, no times and no events
)

// Bits of Config.Flags.
const (
	FlagNoRecorder = format.FlagNoRecorder // never look for a recorder among the ancestors
	FlagNoFile     = format.FlagNoFile     // never start a trace directory
	FlagQuiet      = format.FlagQuiet      // no messages on standard error
	FlagNoClock    = format.FlagNoClock    // events have sequence numbers, no times; must agree with Image.NoClock
	FlagFollow     = format.FlagFollow     // nothing of the program is traced, only what it executes
	FlagExecs      = format.FlagExecs      // a Go program's own code says what it executes; x86-64 only
)

// Config is the runtime's configuration for a process, common to all images: the contents of its symbol
// fentry_config.
type Config struct {
	Mode      uint32 // ModeGraph, ModeFunction, ModeProfile or ModeCount; must agree with the routines the thunks call
	Flags     uint32 // FlagNoRecorder, FlagNoFile, FlagQuiet, FlagNoClock, FlagFollow, FlagExecs
	Depth     uint32 // deeper calls are not recorded; 0: no limit
	Policy    uint32 // what to do if there is no room for events: trace.Policy
	Threshold uint64 // ns; shorter calls are not recorded, 0: all are
	// Stacks is a bitmap, by number, of the system calls at which the stack is walked. Each has to come to the
	// slow path, see [SyscallsSlow].
	Stacks [format.ConfigNStacks]byte
	// Every has the stack walked whenever a thread has run for so many ns, the tracer function_graph with a clock.
	Every   uint64
	Session string // path of a recorder's pool or trace file, up to 511 bytes
	Dir     string // trace directory to create, up to 511 bytes; "": fentry.data
}

// Image is the runtime's configuration for one image: the contents of the symbol fentry_image. Distances are from
// that symbol, in bytes.
type Image struct {
	ID        uint64 // identifies in traces the image and its numbering of sites
	Sites     uint32 // ids are 1 to this
	Address   uint64 // of fentry_image as linked
	Thunks    int64  // distance to the thunk of id 1
	ThunkSize uint32 // bytes of a thunk, a power of 2
	Thunked   uint32 // ids from 1 to this have thunks; 0: all, if Thunks is not 0
	Backs     int64  // arm64: distance to the back of the thunk of id 1; 0: thunks have none
	Switches  int64  // distance to the byte tested by the thunk of id 1, a multiple of 8; see [SwitchesSize]
	Library   bool   // the image is loaded into programs, from a file of its own
	Stages    bool   // with Library: it tells when it is initialised and finalised
	Copy      bool   // with Library: the file is a copy that a recorder has made, which knows its names by ID
	Mode      uint32 // tracer whose routines the thunks call, as in the process's Config
	Options   bool   // the thunks call the routines for a depth, a threshold, roots or functions that are left out
	NoClock   bool   // the thunks call the routines that read no clock
	Flat      bool   // the thunks call those of calls without frames, until a recorder wants some
	Plain     bool   // functions that no compiler has prepared for tracing are among those with ids
	Roots     int64  // distance to a bitmap of the ids that are graph roots; 0: everything is recorded
	GoID      uint32 // of a Go program: where in runtime.g the goroutine's number is; 0: the image is none
	Module    int64  // of a Go program that is relocated: distance to what [GoModule] makes; 0: none
	Park      uint32 // of a Go program: id of runtime.gopark, in which goroutines wait; 0: it is not traced
	Created   uint32 // ... of runtime.newproc1, which makes them
	Parent    uint32 // ... where in runtime.g the number of the goroutine's parent is
	Ready     uint32 // ... id of runtime.ready, which makes a goroutine ready to run
	Ended     uint32 // ... of runtime.goexit1, which goroutines end with
	GoCode    int64  // ... distance to code that is all Go's, in a program with C code; of an OCaml program: all OCaml's
	GoSize    uint64 // ... bytes of it; 0: none
	OCaml     int64  // of an OCaml program: distance to the runtime's code that calls C
	OCamlSize uint64 // ... bytes of it; 0: none
	CurG      uint32 // ... where in runtime.m the goroutine is that it runs
	Thread    uint32 // ... for arm64: where in runtime.m a word is that is the thread's own
	Original  int64  // ... that is patched: distance to what [GoOriginal] makes; 0: none
	Deep      uint32 // ... the bit of an id, as slow paths get it, of events that have a record DEPTH
	Without   int64  // distance to a bitmap of the ids whose thunks call the routines that hide a call; 0: none
	Off       int64  // distance to a bitmap of the ids that are off until a recorder switches them on; 0: none
	Unwind    int64  // distance to a search table of unwind information; 0: that of the program headers
	Actions   int64  // distance to the table that [AppendActions] makes; 0: none
	Table     int64  // distance to the section .fentry.sites; 0: none
	Counts    int64  // distance to ActionCountSize bytes of zeroed memory for each action, a multiple of 4
	NActions  int    // how many actions there are
	Errno     int64  // distance to a word with the address of the C library's __errno_location, or plus 1 to the function; 0: none
	Before    uint32 // how many bytes before fentry_image the runtime begins
	Runtime   uint32 // size of the runtime
	Detours   int64  // distance to the runtime's symbol fentry_detours; 0: it has none
	BuildID   []byte // of the image before it was patched, up to 103 bytes
	Path      string // of the image, up to 1007 bytes
}

// SyscallsSlow makes system calls of a bitmap, by number, come to the slow path: table is the runtime's symbol
// fentry_syscalls.
func SyscallsSlow(table []byte, numbers []byte) {
	for nr := range min(len(table), 8*len(numbers)) {
		if numbers[nr/8]>>(nr%8)&1 != 0 && table[nr] == 0 {
			table[nr] = format.SyscallNoPlan
		}
	}
}

// SyscallsTable is the symbol of the runtime that [SyscallsSlow] changes, of SyscallNumbers bytes.
const (
	SyscallsTable  = "fentry_syscalls"
	SyscallNumbers = format.SyscallNumbers
)

// SwitchesSize returns the size in bytes of the zeroed memory for an image's switches: a byte per function, rounded
// up to whole words, as the runtime sets eight at once.
func SwitchesSize(sites int) uint64 { return (uint64(sites) + 7) &^ 7 }

var le = binary.LittleEndian

// MarshalBinary returns the ConfigSize bytes of fentry_config. It returns an error if a string does not fit or
// contains a NUL byte.
func (c *Config) MarshalBinary() ([]byte, error) {
	b := make([]byte, ConfigSize)
	copy(b[format.ConfigOMagic:], format.ConfigMagic)
	le.PutUint32(b[format.ConfigOVersion:], format.ConfigVersion)
	le.PutUint32(b[format.ConfigOMode:], c.Mode)
	le.PutUint32(b[format.ConfigOFlags:], c.Flags)
	le.PutUint32(b[format.ConfigODepth:], c.Depth)
	le.PutUint32(b[format.ConfigOPolicy:], c.Policy)
	le.PutUint64(b[format.ConfigOThreshold:], c.Threshold)
	copy(b[format.ConfigOStacks:], c.Stacks[:])
	le.PutUint64(b[format.ConfigOEvery:], c.Every)
	if err := putText(b[format.ConfigOSession:][:format.ConfigNSession], "session", c.Session); err != nil {
		return nil, err
	}
	if err := putText(b[format.ConfigODir:][:format.ConfigNDir], "dir", c.Dir); err != nil {
		return nil, err
	}
	return b, nil
}

// MarshalBinary returns the ImageSize bytes of fentry_image. It returns an error if the path or the build-id does not
// fit, or the path contains a NUL byte.
func (m *Image) MarshalBinary() ([]byte, error) {
	b := make([]byte, ImageSize)
	copy(b[format.ImageOMagic:], format.ImageMagic)
	le.PutUint32(b[format.ImageOVersion:], format.ImageVersion)
	le.PutUint32(b[format.ImageOSites:], m.Sites)
	le.PutUint64(b[format.ImageOID:], m.ID)
	le.PutUint64(b[format.ImageOAddress:], m.Address)
	le.PutUint64(b[format.ImageOThunks:], uint64(m.Thunks))
	le.PutUint32(b[format.ImageOThunkSize:], m.ThunkSize)
	if m.Thunks != 0 {
		le.PutUint32(b[format.ImageOThunksCount:], cmp.Or(m.Thunked, m.Sites))
	}
	le.PutUint64(b[format.ImageOBacks:], uint64(m.Backs))
	le.PutUint64(b[format.ImageOSwitches:], uint64(m.Switches))
	le.PutUint64(b[format.ImageORoots:], uint64(m.Roots))
	le.PutUint64(b[format.ImageOWithout:], uint64(m.Without))
	le.PutUint64(b[format.ImageOOff:], uint64(m.Off))
	le.PutUint64(b[format.ImageOUnwind:], uint64(m.Unwind))
	le.PutUint64(b[format.ImageOActions:], uint64(m.Actions))
	le.PutUint64(b[format.ImageOTable:], uint64(m.Table))
	le.PutUint64(b[format.ImageOCounts:], uint64(m.Counts))
	le.PutUint32(b[format.ImageOActionsCount:], uint32(m.NActions))
	le.PutUint32(b[format.ImageOMode:], m.Mode)
	var options uint32
	if m.Options {
		options |= format.OptionsLimits
	}
	if m.NoClock {
		options |= format.OptionsClockless
	}
	if m.Flat {
		options |= format.OptionsFlat
	}
	le.PutUint32(b[format.ImageOOptions:], options)
	le.PutUint32(b[format.ImageOGoroutine:], m.GoID)
	le.PutUint32(b[format.ImageOPark:], m.Park)
	le.PutUint32(b[format.ImageOCreated:], m.Created)
	le.PutUint32(b[format.ImageOParent:], m.Parent)
	le.PutUint32(b[format.ImageOReady:], m.Ready)
	le.PutUint32(b[format.ImageOEnded:], m.Ended)
	le.PutUint32(b[format.ImageOCurg:], m.CurG)
	le.PutUint64(b[format.ImageOGoCode:], uint64(m.GoCode))
	le.PutUint64(b[format.ImageOGoCodeSize:], m.GoSize)
	le.PutUint64(b[format.ImageOOcamlCode:], uint64(m.OCaml))
	le.PutUint64(b[format.ImageOOcamlCodeSize:], m.OCamlSize)
	le.PutUint32(b[format.ImageODeep:], m.Deep)
	le.PutUint32(b[format.ImageOThread:], m.Thread)
	le.PutUint64(b[format.ImageOOriginal:], uint64(m.Original))
	le.PutUint64(b[format.ImageOModule:], uint64(m.Module))
	le.PutUint64(b[format.ImageOErrnoAt:], uint64(m.Errno))
	if m.Plain {
		le.PutUint32(b[format.ImageOPlain:], 1)
	}
	if m.Library {
		le.PutUint32(b[format.ImageOLibrary:], 1)
		if m.Stages {
			le.PutUint32(b[format.ImageOStages:], 1)
		}
		if m.Copy {
			le.PutUint32(b[format.ImageOLibrary:], 2)
		}
	}
	le.PutUint64(b[format.ImageODetours:], uint64(m.Detours))
	le.PutUint32(b[format.ImageOBefore:], m.Before)
	le.PutUint32(b[format.ImageORuntime:], m.Runtime)
	if len(m.BuildID) > format.ImageNBuildID {
		return nil, fmt.Errorf("runtime configuration: build-id of %d bytes, at most %d fit",
			len(m.BuildID), format.ImageNBuildID)
	}
	b[format.ImageOIdlen] = byte(len(m.BuildID))
	copy(b[format.ImageOBuildID:], m.BuildID)
	if err := putText(b[format.ImageOPath:][:format.ImageNPath], "path", m.Path); err != nil {
		return nil, err
	}
	return b, nil
}

// putText writes a NUL-terminated string to a field.
func putText(b []byte, name, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return fmt.Errorf("runtime configuration: %s %q contains a NUL byte", name, text)
	}
	if len(text) >= len(b) {
		return fmt.Errorf("runtime configuration: %s of %d bytes, at most %d fit", name, len(text), len(b)-1)
	}
	copy(b, text)
	return nil
}

// A GoModule says how the module of a Go program's moved code becomes known to the program's runtime, where both are
// relocated. Distances are from the symbol fentry_image, in bytes.
type GoModule struct {
	From  int64    // distance to the module as it is linked
	To    int64    // distance to zeroed memory of the same size, where it is to be
	Next  int64    // distance to the word of the program's module that says which one follows
	Size  uint32   // of the module
	Words []uint32 // offsets in it of the words that are addresses
}

// MarshalBinary returns the structure, with the offsets behind it.
func (g *GoModule) MarshalBinary() ([]byte, error) {
	b := make([]byte, format.GoModuleSize, GoModuleSize(len(g.Words)))
	le.PutUint64(b[format.GoModuleOFrom:], uint64(g.From))
	le.PutUint64(b[format.GoModuleOTo:], uint64(g.To))
	le.PutUint64(b[format.GoModuleONext:], uint64(g.Next))
	le.PutUint32(b[format.GoModuleOSize:], g.Size)
	le.PutUint32(b[format.GoModuleOWords:], uint32(len(g.Words)))
	for _, w := range g.Words {
		b = le.AppendUint32(b, w)
	}
	return b, nil
}

// A GoOriginal is what a patched Go program's code was: pieces, sorted by address and disjoint.
type GoOriginal struct {
	Addrs []uint64
	Bytes [][]byte
}

// AppendTo appends the structure for an image whose symbol fentry_image is at an address. Its size depends on no address.
func (g *GoOriginal) AppendTo(b []byte, image uint64) []byte {
	last := len(g.Addrs) - 1
	from, to := g.Addrs[0], g.Addrs[last]+uint64(len(g.Bytes[last]))
	head := make([]byte, format.GoOriginalSize)
	le.PutUint64(head[format.GoOriginalOFrom:], from-image)
	le.PutUint32(head[format.GoOriginalOSpan:], uint32(to-from))
	le.PutUint32(head[format.GoOriginalOCount:], uint32(len(g.Addrs)))
	b = append(b, head...)
	at := from
	for i, addr := range g.Addrs {
		b = binary.AppendUvarint(b, addr-at)
		b = binary.AppendUvarint(b, uint64(len(g.Bytes[i])))
		b = append(b, g.Bytes[i]...)
		at = addr + uint64(len(g.Bytes[i]))
	}
	return b
}

// GoModuleSize returns the size of a [GoModule] with n words in bytes.
func GoModuleSize(n int) uint64 { return format.GoModuleSize + 4*uint64(n) }
