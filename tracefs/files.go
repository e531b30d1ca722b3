//go:build linux

package tracefs

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/fentry-dev/fentry/internal/safetext"
	"github.com/fentry-dev/fentry/trace"
)

// The files, but for those that keep something while they are open (handle.go).

// A file is one of an instance.
type file struct {
	name string
	top  bool // only in the top directory
	// read returns the text; nil: it cannot be read. write takes what one write has, without the newline behind it; nil: it
	// cannot be written. truncate is what opening it with O_TRUNC does; nil: nothing. All are called with FS.mu held.
	read     func(in *instance) ([]byte, error)
	write    func(in *instance, text string, by writer) error
	truncate func(in *instance) error
	// open replaces read and write.
	open func(in *instance, cpu int, flags uint32) handle
}

// writer is who writes.
type writer struct{ pid int }

// files are those of an instance, by name.
func files() []file {
	return []file{
		{name: "README", top: true, read: func(*instance) ([]byte, error) { return []byte(readme), nil }},
		{name: "available_tracers", read: text(func(*instance) string { return strings.Join(tracers, " ") + "\n" })},
		{name: "available_filter_functions", top: true, read: (*instance).available},
		{name: "enabled_functions", top: true, read: (*instance).enabled},
		{name: "current_tracer",
			read:  text(func(in *instance) string { return in.epochs.now().tracer + "\n" }),
			write: func(in *instance, s string, _ writer) error { return in.setTracer(strings.TrimSpace(s)) }},
		{name: "tracing_on", read: (*instance).readOn, write: (*instance).writeOn},
		{name: "trace", open: openTrace, truncate: func(in *instance) error { in.clear(); return nil }},
		{name: "trace_pipe", open: openPipe},
		{name: "trace_marker", write: (*instance).mark},
		{name: "trace_clock", read: (*instance).readClock, write: (*instance).writeClock},
		{name: "trace_options",
			read: func(in *instance) ([]byte, error) { return in.optionLines(), nil },
			write: func(in *instance, s string, _ writer) error {
				for word := range strings.FieldsSeq(s) {
					if err := in.setOption(word); err != nil {
						return err
					}
				}
				return nil
			}},
		{name: "saved_cmdlines", top: true, read: (*instance).commands},
		{name: "available_events", top: true, read: func(in *instance) ([]byte, error) {
			return in.fs.events.lines(func(int) bool { return true }), nil
		}},
		{name: "set_event", open: openEvents, truncate: (*instance).noEventsOn},
		{name: "set_event_pid", open: openTIDs(func(s *settings) *map[int]bool { return &s.eventTids })},
		{name: "set_event_notrace_pid", open: openTIDs(func(s *settings) *map[int]bool { return &s.noEventTids })},
		{name: "buffer_total_size_kb", read: text(func(in *instance) string {
			return strconv.FormatInt(in.fs.target.Size()>>10, 10) + "\n"
		})},
		{name: "set_ftrace_filter", open: openFilter(filterFunctions)},
		{name: "set_ftrace_notrace", open: openFilter(filterNotrace)},
		{name: "set_graph_function", top: true, open: openFilter(filterGraph)},
		{name: "set_graph_notrace", top: true, open: openFilter(filterNoGraph)},
		{name: "set_ftrace_pid", open: openTIDs(func(s *settings) *map[int]bool { return &s.tids })},
		{name: "set_ftrace_notrace_pid", open: openTIDs(func(s *settings) *map[int]bool { return &s.noTids })},
		{name: "tracing_cpumask", read: (*instance).readMask, write: (*instance).writeMask},
		{name: "function_profile_enabled", top: true, read: text(func(in *instance) string { return bit(in.fs.profile.on) }),
			write: func(in *instance, s string, _ writer) error { return in.fs.setProfile(s) }},
		number("max_graph_depth", 1, func(s *settings) *int64 { return &s.maxDepth }),
		number("tracing_thresh", 1000, func(s *settings) *int64 { return &s.threshold }),
		{name: "buffer_size_kb", open: openSize},
		{name: "snapshot", read: (*instance).readSnapshot, write: (*instance).writeSnapshot},
	}
}

// bit is the text of what is on or off.
func bit(on bool) string {
	if on {
		return "1\n"
	}
	return "0\n"
}

// text makes a read of a string.
func text(f func(*instance) string) func(*instance) ([]byte, error) {
	return func(in *instance) ([]byte, error) { return []byte(f(in)), nil }
}

// number is the file of a number, in units of the setting's.
func number(name string, unit int64, of func(*settings) *int64) file {
	return file{
		name: name, top: true,
		read: text(func(in *instance) string { return strconv.FormatInt(*of(in.epochs.now())/unit, 10) + "\n" }),
		write: func(in *instance, s string, _ writer) error {
			n, err := parseNumber(s)
			if err == nil && n > uint64(math.MaxInt64/unit) {
				err = syscall.EINVAL // the kernel goes on with what is left of it
			}
			if err != nil {
				return err
			}
			return in.change(func(s *settings) { *of(s) = int64(n) * unit })
		},
	}
}

func (in *instance) available() ([]byte, error) {
	if err := in.fs.refresh(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for i := range in.fs.functions.all {
		if in.fs.functions.listed(i) {
			b.WriteString(in.fs.functions.line(i))
		}
	}
	return b.Bytes(), nil
}

func (in *instance) enabled() ([]byte, error) {
	if err := in.fs.refresh(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for i, on := range in.fs.installed {
		if on && in.fs.functions.listed(i) {
			b.WriteString(in.fs.functions.line(i))
		}
	}
	return b.Bytes(), nil
}

func (in *instance) readOn() ([]byte, error) {
	if err := in.fs.scan(); err != nil {
		return nil, err
	}
	return []byte(bit(in.epochs.now().on)), nil
}

func (in *instance) writeOn(s string, _ writer) error {
	n, err := parseNumber(s)
	if err != nil {
		return err
	}
	if err := in.fs.scan(); err != nil {
		return err
	}
	if in.epochs.now().on == (n != 0) {
		return nil
	}
	return in.change(func(s *settings) { s.on = n != 0 })
}

// mark is a write to trace_marker.
func (in *instance) mark(s string, by writer) error {
	set := in.epochs.now()
	if !set.flags["markers"] {
		return syscall.EINVAL
	}
	if err := in.fs.scan(); err != nil {
		return err
	}
	if !in.epochs.now().on {
		return syscall.EBADF
	}
	if len(in.marks) >= mostMarks {
		in.marks = slices.Delete(in.marks, 0, mostMarks/2)
	}
	task := &trace.Task{PID: by.pid, TID: by.pid, Comm: commOf(by.pid)}
	in.fs.news++
	in.marks = append(in.marks, mark{at: in.fs.target.Now(), task: task, text: s[:min(len(s), mostMark)]})
	return nil
}

func (in *instance) readClock() ([]byte, error) {
	var words []string
	for _, c := range clocks {
		if c == in.clock {
			c = "[" + c + "]"
		}
		words = append(words, c)
	}
	return []byte(strings.Join(words, " ") + "\n"), nil
}

func (in *instance) writeClock(s string, _ writer) error {
	s = strings.TrimSpace(s)
	if !slices.Contains(clocks, s) {
		return syscall.EINVAL
	}
	if s != in.clock {
		in.clock = s
		in.clear()
	}
	return nil
}

// commands is the text of saved_cmdlines.
func (in *instance) commands() ([]byte, error) {
	t, err := in.fs.open()
	if err != nil {
		return nil, err
	}
	t.Close()
	var b bytes.Buffer
	for _, tid := range slices.Sorted(maps.Keys(in.fs.comms)) {
		fmt.Fprintf(&b, "%d %s\n", tid, safetext.Line(in.fs.comms[tid]))
	}
	return b.Bytes(), nil
}

const snapshotHelp = `# Snapshot commands:
# echo 0 > snapshot : Clears and frees snapshot buffer
# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.
#                      Takes a snapshot of the main buffer.
# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
`

func (in *instance) readSnapshot() ([]byte, error) {
	t, err := in.fs.open()
	if err != nil {
		return nil, err
	}
	t.Close()
	state := "allocated"
	switch {
	case len(in.snap) > 0:
		return in.snap, nil
	case in.snap == nil:
		state = "freed"
	}
	return []byte("# tracer: " + in.epochs.now().tracer + "\n#\n#\n# * Snapshot is " + state + " *\n#\n" + snapshotHelp), nil
}

func (in *instance) writeSnapshot(s string, _ writer) error {
	n, err := parseNumber(s)
	switch {
	case err != nil:
		return err
	case n == 0:
		in.snap = nil
	case n == 1:
		return in.takeSnapshot()
	case in.snap != nil:
		in.snap = []byte{}
	}
	return nil
}

// mostMask bounds what is written to tracing_cpumask, in hex digits.
const mostMask = mostCPUs / 4

// readMask is the text of tracing_cpumask: hex digits, with a comma between 32 bits and the next.
func (in *instance) readMask() ([]byte, error) {
	set := in.epochs.now()
	all := max(1, len(in.fs.cpus))
	mask := set.cpus
	if mask == nil {
		mask = new(big.Int).Lsh(big.NewInt(1), uint(all))
		mask.Sub(mask, big.NewInt(1))
	}
	digits := fmt.Sprintf("%0*x", (all+3)/4, mask)
	for i := len(digits) - 8; i > 0; i -= 8 {
		digits = digits[:i] + "," + digits[i:]
	}
	return []byte(digits + "\n"), nil
}

// writeMask takes one. A mask of all threads that there are means those, too, that come.
func (in *instance) writeMask(s string, _ writer) error {
	digits := strings.ReplaceAll(strings.TrimSpace(s), ",", "")
	hex := len(digits) > 0 && len(digits) <= mostMask && strings.Trim(digits, "0123456789abcdefABCDEF") == ""
	mask, ok := new(big.Int).SetString(digits, 16)
	if !hex || !ok {
		return syscall.EINVAL
	}
	if mask.TrailingZeroBits() == 0 {
		all := new(big.Int).Add(mask, big.NewInt(1))
		if all.TrailingZeroBits() == uint(mask.BitLen()) && mask.BitLen() >= len(in.fs.cpus) {
			mask = nil
		}
	}
	return in.change(func(s *settings) { s.cpus = mask })
}
