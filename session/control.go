//go:build linux

package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fentry-dev/fentry/trace"
)

// Control of a session while it runs.
//
// The recorder listens, never the program: at a socket in the abstract namespace that is named after each process that the
// session began with, so nothing is left behind by a recorder that is killed. Who asks must be this user or root, as the
// kernel says who it is, and who answers must be, too: a name belongs to whoever takes it first. A command is a line, and
// so is the answer: "ok", or "error", the column in the line that it is about, and why. What a command says is understood
// and looked up as a whole before the first switch of a function is changed.
//
// A function's switch is a byte in the program that its thunk tests, so nobody is stopped for a change.

// ControlName is the name of the socket for a process.
func controlName(pid int) string { return fmt.Sprintf("@fentry/%d", pid) }

// A ControlError is an answer that a command cannot be followed.
type ControlError struct {
	Column int // in the command, from 1 on
	Why    string
}

func (e *ControlError) Error() string { return e.Why }

// ErrNotRecorded is returned by [Control] for a process that no recorder answers for.
var ErrNotRecorded = errors.New("no recorder answers for it")

const (
	controlPatience = 10 * time.Second
	dumpPatience    = 5 * time.Minute // until a dump is on a disk
	mostCommand     = 64 << 10        // bytes
)

// Control sends a command to the recorder of a process: "tracing_on = 0", "set_ftrace_filter += parse_*" (or "-=", or
// "="), "dump", or "dump 200ms", to a flight recorder, which answers with the directory of the dump, or "detach". An error
// about the command is a *ControlError.
func Control(pid int, command string) (answer string, err error) {
	if strings.ContainsAny(command, "\n\x00") || len(command) >= mostCommand {
		return "", &ControlError{1, "not one line"}
	}
	c, err := net.DialTimeout("unix", controlName(pid), controlPatience)
	if err != nil {
		return "", ErrNotRecorded
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dumpPatience))
	if _, err := trusted(c.(*net.UnixConn)); err != nil {
		return "", fmt.Errorf("who answers for it is not its recorder: %w", err)
	}
	if _, err := fmt.Fprintln(c, command); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(io.LimitReader(c, mostCommand)).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("its recorder does not answer: %w", err)
	}
	line = strings.TrimSuffix(line, "\n")
	if answer, ok := strings.CutPrefix(line, "ok"); ok {
		return strings.TrimPrefix(answer, " "), nil
	}
	e := &ControlError{}
	rest, ok := strings.CutPrefix(line, "error ")
	at, why, sep := strings.Cut(rest, ": ")
	if _, err := fmt.Sscan(at, &e.Column); err != nil || !ok || !sep {
		return "", fmt.Errorf("its recorder answers %q", line)
	}
	e.Why = why
	return "", e
}

// control is what a session answers with.
type control struct {
	listeners []net.Listener
	serves    sync.WaitGroup
	detach    chan struct{}
	once      sync.Once

	mu     sync.Mutex
	off    bool                              // tracing_on is 0
	chosen map[trace.ImageID]map[uint32]bool // functions that are not switched off, by local id; nil: all are
}

// openControl begins to answer for some processes.
func (s *session) openControl(pids []int) {
	s.control.detach = make(chan struct{})
	s.control.chosen = map[trace.ImageID]map[uint32]bool{}
	for _, pid := range pids {
		l, err := net.Listen("unix", controlName(pid))
		if err != nil {
			s.logf("process %d: fentry control and detach cannot be used: %v", pid, err)
			continue
		}
		s.control.listeners = append(s.control.listeners, l)
		s.control.serves.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				s.answer(c.(*net.UnixConn))
			}
		})
	}
}

// closeControl ends that.
func (s *session) closeControl() {
	for _, l := range s.control.listeners {
		l.Close()
	}
	s.control.serves.Wait()
	s.control.mu.Lock() // so that [Live] has done what it is doing
	defer s.control.mu.Unlock()
}

// answer serves one command.
func (s *session) answer(c *net.UnixConn) {
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(controlPatience))
	if _, err := trusted(c); err != nil {
		return
	}
	line, err := bufio.NewReader(io.LimitReader(c, mostCommand)).ReadString('\n')
	if err != nil {
		return
	}
	answer, e := s.command(strings.TrimSuffix(line, "\n"))
	if answer = "ok " + answer; e != nil {
		answer = fmt.Sprintf("error %d: %s", e.Column, e.Why)
	}
	_ = c.SetWriteDeadline(time.Now().Add(controlPatience))
	_, _ = fmt.Fprintln(c, strings.ReplaceAll(strings.TrimSuffix(answer, " "), "\n", " "))
}

// A word of a command, and in which column it begins.
type word struct {
	text string
	at   int
}

// words cuts a command at blanks, and at commas behind the first two words.
func words(line string) (ws []word) {
	start := -1
	for i := 0; i <= len(line); i++ {
		end := i == len(line) || line[i] == ' ' || line[i] == '\t' || line[i] == ',' && len(ws) >= 2
		switch {
		case end && start >= 0:
			ws, start = append(ws, word{line[start:i], start + 1}), -1
		case !end && start < 0:
			start = i
		}
	}
	return ws
}

// commands are those that there are.
const commands = "tracing_on, set_ftrace_filter, dump or detach"

// command does what a command says, or nothing.
func (s *session) command(line string) (answer string, err *ControlError) {
	ws := words(line)
	if len(ws) == 0 {
		return "", &ControlError{1, "no command: " + commands}
	}
	switch name := ws[0]; name.text {
	case "detach":
		if len(ws) > 1 {
			return "", &ControlError{ws[1].at, "detach is followed by nothing"}
		}
		s.control.once.Do(func() { close(s.control.detach) })
		return "", nil
	case "dump":
		return s.dumpCommand(ws)
	case "tracing_on", "set_ftrace_filter":
		return "", s.switchCommand(ws, len(line)+1)
	default:
		return "", &ControlError{name.at, "no such command: " + commands}
	}
}

// dumpCommand makes a dump, and answers with its directory.
func (s *session) dumpCommand(ws []word) (string, *ControlError) {
	var last time.Duration
	if len(ws) > 1 {
		var err error
		if last, err = time.ParseDuration(ws[1].text); err != nil || last <= 0 {
			return "", &ControlError{ws[1].at, "not a time such as 200ms"}
		}
	}
	switch {
	case len(ws) > 2:
		return "", &ControlError{ws[2].at, "dump is followed by one time at most"}
	case s.flight == nil:
		return "", &ControlError{ws[0].at, "its recorder is no flight recorder (record --flight)"}
	}
	d, err := s.flight.askDump("fentry dump", last)
	if err != nil {
		return "", &ControlError{ws[0].at, err.Error()}
	}
	dir, err := filepath.Abs(d.Dir)
	if err != nil {
		dir = d.Dir
	}
	return dir, nil
}

// switchCommand switches functions; end is the column behind the command.
func (s *session) switchCommand(ws []word, end int) *ControlError {
	name := ws[0]
	if s.attached == nil {
		return &ControlError{name.at, "only in a process that was attached to (record -p)"}
	}
	if len(ws) < 3 {
		return &ControlError{end, name.text + " is followed by =, += or -=, and a value"}
	}
	op, values := ws[1], ws[2:]
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	if name.text == "tracing_on" {
		switch on := values[0]; {
		case op.text != "=":
			return &ControlError{op.at, "tracing_on is followed by ="}
		case len(values) > 1:
			return &ControlError{values[1].at, "one value"}
		case on.text != "0" && on.text != "1":
			return &ControlError{on.at, "0 or 1"}
		default:
			return s.switchAll(name, on.text == "0", s.control.chosen)
		}
	}
	chosen, err := s.choose(op, values)
	if err != nil {
		return err
	}
	return s.switchAll(name, s.control.off, chosen)
}

// choose returns which functions are not switched off once patterns have been added to them, taken away, or put in their
// place.
func (s *session) choose(op word, patterns []word) (map[trace.ImageID]map[uint32]bool, *ControlError) {
	if op.text != "=" && op.text != "+=" && op.text != "-=" {
		return nil, &ControlError{op.at, "=, += or -="}
	}
	out := map[trace.ImageID]map[uint32]bool{}
	matched := make([]bool, len(patterns))
	for image, traced := range s.attached.images() {
		set := map[uint32]bool{}
		for id := uint32(1); op.text != "=" && int(id) <= traced; id++ {
			if was := s.control.chosen[image]; was == nil || was[id] {
				set[id] = true
			}
		}
		for i, pattern := range patterns {
			ids, err := s.o.Attach.Match(image, pattern.text)
			if err != nil {
				return nil, &ControlError{pattern.at, err.Error()}
			}
			for _, id := range ids {
				matched[i] = true
				if op.text == "-=" {
					delete(set, id)
				} else {
					set[id] = true
				}
			}
		}
		out[image] = set
	}
	if i := slices.Index(matched, false); i >= 0 {
		return nil, &ControlError{patterns[i].at, "no function that is recorded matches"}
	}
	return out, nil
}

// switchAll switches functions of all processes.
func (s *session) switchAll(name word, off bool, chosen map[trace.ImageID]map[uint32]bool) *ControlError {
	for _, m := range s.attached.shared.Mappers(0) {
		p := s.attached.of(m.Pid)
		if p == nil {
			continue
		}
		on := func(image uint64, id uint32) bool {
			set := chosen[trace.ImageID(image)]
			return !off && (set == nil || set[id])
		}
		if err := p.at.Switch(m.Pid, on); err != nil {
			return &ControlError{name.at, fmt.Sprintf("process %d: %v", m.Pid, err)}
		}
	}
	s.control.off, s.control.chosen = off, chosen
	return nil
}
