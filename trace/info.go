package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/fentry-dev/fentry/internal/atomicfile"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/internal/safetext"
)

// Names of the files in a trace directory.
const (
	InfoFile   = format.FileInfo
	EventsFile = format.FileEvents
	ChunksFile = format.FileChunks
	IndexFile  = format.FileIndex
	SymExt     = format.FileSym // appended to an ImageID's text
)

// maxInfoSize bounds what is read of info.json. A thousand images take less
// than one MiB.
const maxInfoSize = 64 << 20

// Info is the contents of info.json: what a recorder knows about a trace besides its events. A trace that a patched
// program wrote alone has none.
type Info struct {
	// Version is the version of the format.
	Version int `json:"version"`
	// Writer is the program that recorded the trace, with its version.
	Writer string `json:"writer,omitempty"`

	Command []string  `json:"command"`
	Dir     string    `json:"cwd,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Start   time.Time `json:"start"`
	// Duration of the program's run.
	Duration time.Duration `json:"duration_ns"`
	// ExitStatus is the program's, -1 while it runs or if a signal ended it.
	ExitStatus int `json:"exit_status"`
	// Signal is the number of the signal that ended the program, 0 if none.
	Signal int `json:"signal,omitempty"`

	Tracer string `json:"tracer,omitempty"` // function, function_graph or profile
	// Options are the recorder's options as the user gave them, for people.
	Options []string `json:"options,omitempty"`

	Host    string `json:"host,omitempty"`
	Machine string `json:"machine,omitempty"` // as uname -m
	CPU     string `json:"cpu,omitempty"`     // model name
	CPUs    int    `json:"cpus,omitempty"`
	Kernel  string `json:"kernel,omitempty"` // as uname -r

	Clock  InfoClock `json:"clock"`
	Images []Image   `json:"images,omitempty"`
	// Processes are those that the recorder saw, by the time it first did.
	Processes []InfoProcess `json:"processes,omitempty"`
	// Tasks are those that the recorder saw, by when it saw their names, whether they recorded anything or not.
	Tasks  []InfoTask `json:"tasks,omitempty"`
	Totals Totals     `json:"totals"`
	// Lost is the number of events that were lost, with every reason.
	Lost uint64 `json:"lost"`
	// Killed says that the recorder was killed, and that the trace has all that was recorded until then; how the program
	// ended is not known.
	Killed bool `json:"killed,omitempty"`
	// Dump says why the trace was written while the program ran; nil: it was written at the end.
	Dump *InfoDump `json:"dump,omitempty"`
	// Switches says how it is known when threads were off a processor; nil: the recorder did not ask.
	Switches *InfoSwitches `json:"switches,omitempty"`
	// Samples says how stacks were taken on a timer; nil: none were.
	Samples *InfoSamples `json:"samples,omitempty"`
}

// InfoDump is what a flight recorder says of a trace that it wrote while the program ran.
type InfoDump struct {
	Cause string `json:"cause"`
	// Asked is how much of the time before was asked for; 0: all that there was.
	Asked time.Duration `json:"asked_ns,omitempty"`
	// Whole is the time before it of which nothing is missing; 0: all, since the recording began.
	Whole time.Duration `json:"whole_ns,omitempty"`
}

// InfoSwitches says how it is known when threads were off a processor.
type InfoSwitches struct {
	Source string `json:"source,omitempty"` // SwitchesPerf; "": it is not
	Reason string `json:"reason,omitempty"` // why it is not
	// Lost records of the kernel's leave times in which nothing is known of any thread.
	Lost uint64 `json:"lost,omitempty"`
}

// InfoSamples says how stacks were taken each time that a thread had run for some time.
type InfoSamples struct {
	Every  time.Duration `json:"every"`            // ns
	Source string        `json:"source,omitempty"` // SwitchesPerf; "": they were taken at events of the threads
	Reason string        `json:"reason,omitempty"` // why they were
	Taken  uint64        `json:"taken,omitempty"`
	Lost   uint64        `json:"lost,omitempty"` // that the kernel or the recorder had no room for
}

// SwitchesPerf is the source of task switches that the kernel's perf events tell of.
const SwitchesPerf = "perf"

// InfoClock ties the timestamp counter to CLOCK_MONOTONIC.
type InfoClock struct {
	// Hz is the counter's frequency, 0 if unknown.
	Hz uint64 `json:"hz,omitempty"`
	// Pairs were read as far apart in time as possible, such as at the beginning and the end of the recording.
	Pairs []ClockPair `json:"pairs,omitempty"`
}

// A ClockPair is the counter and CLOCK_MONOTONIC at one moment.
type ClockPair struct {
	Counter   uint64 `json:"counter"`
	Monotonic uint64 `json:"monotonic_ns"`
}

// Totals are the recorder's counts.
type Totals struct {
	Events    uint64 `json:"events,omitempty"`
	Chunks    uint64 `json:"chunks,omitempty"`
	Bytes     uint64 `json:"bytes,omitempty"`
	Processes int    `json:"processes,omitempty"`
	Tasks     int    `json:"tasks,omitempty"`
}

// An InfoProcess is what the recorder saw of a process. Times are CLOCK_MONOTONIC in ns.
type InfoProcess struct {
	PID    int    `json:"pid"`
	Parent int    `json:"parent,omitempty"`
	Seen   uint64 `json:"seen_monotonic_ns"` // when it was first seen
	// Titles are what it called itself, other than its arguments, oldest first.
	Titles []InfoTitle `json:"titles,omitempty"`
	// Ended is when it was seen to have ended, 0 if it was not.
	Ended      uint64 `json:"ended_monotonic_ns,omitempty"`
	ExitStatus int    `json:"exit_status,omitempty"` // as in Info
	Signal     int    `json:"signal,omitempty"`
	// Source says how the status is known; "": it is not.
	Source ExitSource `json:"exit_source,omitempty"`
}

// An InfoTask is the last name that the recorder saw of a task.
type InfoTask struct {
	TID   int    `json:"tid"`
	PID   int    `json:"pid"`
	Start uint64 `json:"start_ticks"` // field 22 of /proc/PID/stat
	Name  string `json:"name"`
	Seen  uint64 `json:"seen_monotonic_ns"` // when the task was first seen with that name
}

// An InfoTitle is what a process called itself, and when that was seen first.
type InfoTitle struct {
	Monotonic uint64 `json:"monotonic_ns"`
	Text      string `json:"text"`
}

// An ImageID names a program image in a trace. Its text is 16 hex digits.
type ImageID uint64

// String returns the 16 hex digits that also name the image's .sym file.
func (id ImageID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id ImageID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ImageID) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || len(b) != 16 {
		return fmt.Errorf("image id %.20q: want 16 hex digits", b)
	}
	*id = ImageID(v)
	return nil
}

// OffsetIDs is the numbering of programs linked with the tracer: a function's id says where in the image the function
// calls the tracer: at offset (id - 1) * 4 from the ELF header, or up to 3 bytes after it.
const OffsetIDs = "offset/4"

// An Image is a program image whose functions are in a trace.
type Image struct {
	ID      ImageID `json:"id"`
	Path    string  `json:"path,omitempty"`
	BuildID string  `json:"build_id,omitempty"` // hex digits
	Machine string  `json:"machine,omitempty"`
	// Sites is the number of ids, which are 1 to Sites; 0 if unknown.
	Sites int `json:"sites,omitempty"`
	// Bias is the load address minus the link address in the process that
	// wrote it.
	Bias uint64 `json:"bias,omitempty"`
	Exe  string `json:"exe,omitempty"` // as /proc/self/exe
	// File is the file that a shared object was loaded from, "" for a program.
	File string `json:"file,omitempty"`
	// Home is set in what ParseImage returns if the image was loaded by a process that was traced already: the image that
	// this one joined.
	Home    ImageID  `json:"-"`
	Command []string `json:"command,omitempty"`
	Parent  int      `json:"parent,omitempty"` // process id of the parent of the process that wrote it
	Mode    string   `json:"mode,omitempty"`   // tracer
	Clock   string   `json:"clock,omitempty"`  // ClockNone, or "": events have times
	Stacks  string   `json:"stacks,omitempty"` // StacksGoroutines, or "": threads' and coroutines'
	Park    uint32   `json:"park,omitempty"`   // of a Go program: id of the function in which goroutines wait; 0: unknown
	Ready   uint32   `json:"ready,omitempty"`  // ... of the one that makes them ready to run
	// IDs says how functions are numbered: "" for a table of sites, or OffsetIDs.
	IDs string `json:"ids,omitempty"`
	// Plain says that functions are among those traced that no compiler has prepared for it.
	Plain bool `json:"plain,omitempty"`
}

// ReadInfo reads dir/info.json. The error wraps fs.ErrNotExist if there is none.
func ReadInfo(dir string) (*Info, error) {
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return readInfo(d)
}

func readInfo(d *safefile.Dir) (*Info, error) {
	path := filepath.Join(d.Name(), InfoFile)
	b, err := d.ReadFile(InfoFile, maxInfoSize)
	if err != nil {
		return nil, err
	}
	info, err := ParseInfo(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return info, nil
}

// ParseInfo parses the contents of an info.json.
func ParseInfo(b []byte) (*Info, error) {
	if len(b) > maxInfoSize {
		return nil, fmt.Errorf("more than %d bytes", maxInfoSize)
	}
	info := new(Info)
	if err := json.Unmarshal(b, info); err != nil {
		var se *json.SyntaxError
		var te *json.UnmarshalTypeError
		switch {
		case errors.As(err, &se):
			return nil, fmt.Errorf("offset %d: %w", se.Offset, err)
		case errors.As(err, &te):
			return nil, fmt.Errorf("offset %d: field %s: want %s, have %s", te.Offset, te.Field, te.Type, te.Value)
		}
		return nil, err
	}
	if info.Version != format.Version {
		return nil, versionError(info.Version)
	}
	for i, im := range info.Images {
		if im.Sites < 0 || im.Sites > format.IDMax {
			return nil, fmt.Errorf("images[%d]: %d sites", i, im.Sites)
		}
	}
	return info, nil
}

// EncodeInfo returns the contents of an info.json. The version is filled in.
func EncodeInfo(info *Info) ([]byte, error) {
	v := *info
	v.Version = format.Version
	b, err := json.MarshalIndent(&v, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(safetext.JSON(b), '\n'), nil
}

// WriteInfo writes dir/info.json, atomically: a reader sees the old file or the
// new one. The version is filled in.
func WriteInfo(dir string, info *Info) error {
	b, err := EncodeInfo(info)
	if err != nil {
		return err
	}
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return atomicfile.WriteIn(d, InfoFile, atomicfile.Options{NoSync: true, Own: true}, func(w *os.File) error {
		_, err := w.Write(b)
		return err
	})
}

// missing reports whether err only says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
