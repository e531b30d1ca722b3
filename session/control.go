//go:build linux

package session

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// Control of a session while it runs.
//
// The recorder listens, never the program: at a socket that is named after each process that the session began with, in a
// directory of this user's alone. Who asks must be this user or root, as the kernel says who it is, and who answers must be,
// too. A line is asked and a line answered: "ok", or "error", the column in the line that it is about (0: none), and why. What a line
// says is understood and looked up as a whole before anything is changed (command.go, settings.go).

// A ControlError is an answer that a command cannot be followed.
type ControlError struct {
	Column int // in the command, from 1 on; 0: the command is right
	Why    string
}

func (e *ControlError) Error() string { return e.Why }

// ErrNotRecorded is returned by [Control] for a process that no recorder answers for.
var ErrNotRecorded = errors.New("no recorder answers for it")

// ErrNoTracer is returned by [Release] for a process that has no tracer.
var ErrNoTracer = tracee.ErrNoRuntime

const (
	controlPatience = 10 * time.Second
	endPatience     = time.Second     // for an answer, when the session has ended
	dumpPatience    = 5 * time.Minute // until a dump is on a disk
	mostCommand     = 64 << 10        // bytes of a line, with its end
	mostAnswer      = 1 << 20
	mostAsking      = 16 // who are listened to at the same time
)

// controlDirs are the directories in which a user's recorders have their sockets, best first.
func controlDirs(uid int) (dirs []string) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && uid == os.Geteuid() {
		dirs = append(dirs, filepath.Join(dir, "fentry"))
	}
	return append(dirs, fmt.Sprintf("/run/user/%d/fentry", uid), fmt.Sprintf("/tmp/fentry-%d", uid))
}

// ownDir tells whether a directory is a user's, and nobody else may change what is in it.
func ownDir(dir string, uid int) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid && st.Mode&0o077 == 0
}

func controlName(dir string, pid int) string { return filepath.Join(dir, fmt.Sprintf("%d.sock", pid)) }

// nobodyAt is why nobody is reached at a socket; nil: somebody is.
func nobodyAt(path string) error {
	c, err := net.DialTimeout("unix", path, controlPatience)
	if err == nil {
		c.Close()
	}
	return err
}

// clearControl removes sockets that killed recorders have left, some at a time: those of processes that are gone, nobody listens
// at, and that are not about to be listened at.
func clearControl(dir string) {
	const some, old = 64, time.Minute
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(some)
	for _, name := range names {
		number, ok := strings.CutSuffix(name, ".sock")
		pid, err := strconv.Atoi(number)
		if !ok || err != nil || pid <= 0 || unix.Kill(pid, 0) != unix.ESRCH {
			continue
		}
		path := filepath.Join(dir, name)
		if st, err := os.Lstat(path); err != nil || st.Mode().Type() != fs.ModeSocket || time.Since(st.ModTime()) < old {
			continue
		}
		if errors.Is(nobodyAt(path), unix.ECONNREFUSED) { // in another PID namespace the process can go on
			_ = os.Remove(path)
		}
	}
}

// forsakenControl removes the socket at which a recorder of a process has listened that was killed.
func forsakenControl(pid int) {
	for _, dir := range controlDirs(os.Geteuid()) {
		name := controlName(dir, pid)
		if ownDir(dir, os.Geteuid()) && errors.Is(nobodyAt(name), unix.ECONNREFUSED) {
			_ = os.Remove(name)
		}
	}
}

// listenControl listens for commands about a process.
func listenControl(pid int) (l *net.UnixListener, err error) {
	err = errors.New("there is no directory for its socket")
	for _, dir := range controlDirs(os.Geteuid()) {
		if merr := os.Mkdir(dir, 0o700); merr != nil && !os.IsExist(merr) {
			continue
		}
		if !ownDir(dir, os.Geteuid()) {
			err = fmt.Errorf("%s is not a directory of this user's alone", dir)
			continue
		}
		name := controlName(dir, pid)
		if nobodyAt(name) == nil {
			return nil, errors.New("another recorder answers for it")
		}
		_ = os.Remove(name) // of a recorder that was killed
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"}); err == nil {
			err = os.Chmod(name, 0o600)
			return l, err
		}
	}
	return nil, err
}

// dialControl finds who answers for a process: a recorder of this user's, or, as root, of the process's user's.
func dialControl(pid int) (net.Conn, error) {
	uids := []int{os.Geteuid()}
	if uid, ok := procfs.User(pid); ok && os.Geteuid() == 0 && uid != 0 {
		uids = append(uids, uid)
	}
	for _, uid := range uids {
		for _, dir := range controlDirs(uid) {
			if !ownDir(dir, uid) {
				continue
			}
			if c, err := net.DialTimeout("unix", controlName(dir, pid), controlPatience); err == nil {
				return c, nil
			}
		}
	}
	return nil, ErrNotRecorded
}

// Control sends a line to the recorder of a process, and returns its answer. The manual page of fentry control has the
// commands: settings with the names of tracefs, such as "tracing_on = 0", "set_ftrace_filter += parse_*" or
// "max_graph_depth = 3", or, to ask, the name alone; "status", "dump", "dump 200ms" and "detach". Several settings are
// separated by semicolons; all of them are made, or none. An error about the line is a *ControlError.
func Control(pid int, line string) (answer string, err error) {
	if strings.ContainsAny(line, "\n\x00") || len(line) >= mostCommand {
		return "", &ControlError{1, "not one line"}
	}
	c, err := dialControl(pid)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(dumpPatience))
	cred, err := credentials(c.(*net.UnixConn))
	if err != nil || int(cred.Uid) != 0 && int(cred.Uid) != os.Geteuid() && os.Geteuid() != 0 {
		return "", errors.New("who answers for it is not its recorder")
	}
	var answered string
	if _, err = fmt.Fprintln(c, line); err == nil {
		answered, err = bufio.NewReader(io.LimitReader(c, mostAnswer)).ReadString('\n')
	}
	switch {
	case err != nil && cred.Pid > 0 && !errors.Is(err, os.ErrDeadlineExceeded) && procfs.Ending(int(cred.Pid), int(cred.Pid)):
		return "", ErrNotRecorded // it was killed meanwhile
	case err != nil:
		return "", fmt.Errorf("its recorder does not answer: %w", err)
	}
	return parseAnswer(strings.TrimSuffix(answered, "\n"))
}

// parseAnswer understands an answer.
func parseAnswer(line string) (string, error) {
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
	stop      chan struct{} // the session ends

	mu     sync.Mutex
	asking map[net.Conn]bool // who are listened to
	over   bool
	part   []*net.UnixConn // who wait for the end
	stay   []string        // processes in which the tracer stays, and why
}

// openControl begins to answer for some processes.
func (s *session) openControl(pids []int) {
	s.control.detach, s.control.stop = make(chan struct{}), make(chan struct{})
	s.control.asking = make(map[net.Conn]bool)
	s.setting.now.added = &additions{}
	s.setting.next = time.Now().Add(costlyTime)
	s.setting.now.depth, s.setting.now.thresh, s.setting.now.flat = s.o.Depth, s.o.Threshold, s.o.Flat
	if s.o.First != nil {
		s.setting.now.filter = choice{rules: []rule{{adds: true, pattern: s.o.FirstText, ids: s.o.First}}, only: true}
		s.setting.quiet = time.Now()
	}
	s.control.serves.Go(func() { s.reapply(s.control.stop) })
	if p := s.o.Pipe; p != nil {
		s.control.serves.Go(func() { s.obeyPipe(p) })
	}
	room := make(chan struct{}, mostAsking)
	for _, pid := range pids {
		l, err := listenControl(pid)
		if err != nil {
			s.logf("process %d: fentry control and detach cannot be used: %v", pid, err)
			continue
		}
		s.control.listeners = append(s.control.listeners, l)
		s.control.serves.Go(func() {
			for {
				c, err := l.AcceptUnix()
				if err != nil {
					return
				}
				room <- struct{}{}
				s.control.serves.Go(func() {
					s.answer(c)
					<-room
				})
			}
		})
	}
	if len(s.control.listeners) > 0 { // where nobody waits for it
		dir := filepath.Dir(s.control.listeners[0].Addr().String())
		s.control.serves.Go(func() { clearControl(dir) })
	}
}

// closeControl ends that. Who is being answered gets the answer.
func (s *session) closeControl() {
	for _, l := range s.control.listeners {
		l.Close()
	}
	close(s.control.stop)
	if s.o.Pipe != nil {
		_ = s.o.Pipe.Commands.SetReadDeadline(time.Now())
	}
	s.control.mu.Lock()
	s.control.over = true
	for c := range s.control.asking {
		_ = c.SetReadDeadline(time.Now())
		_ = c.SetWriteDeadline(time.Now().Add(endPatience))
	}
	s.control.mu.Unlock()
	s.control.serves.Wait()
	s.o.Pipe.close()
	s.setting.mu.Lock() // so that [Live] has done what it is doing
	defer s.setting.mu.Unlock()
}

// listen notes that somebody is listened to, or not any more.
func (s *session) listen(c net.Conn, on bool) {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	if !on {
		delete(s.control.asking, c)
		return
	}
	s.control.asking[c] = true
	_ = c.SetReadDeadline(time.Now().Add(controlPatience))
	if s.control.over {
		_ = c.SetReadDeadline(time.Now())
	}
}

// waitForEnd has somebody told when the tracer has been taken out of the processes. It returns false if there is no room for that.
func (s *session) waitForEnd(c *net.UnixConn) bool {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	if len(s.control.part) == mostAsking {
		return false
	}
	s.control.part = append(s.control.part, c)
	return true
}

// stays notes that the tracer stays in a process, and why.
func (s *session) stays(pid int, why error) {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	s.control.stay = append(s.control.stay, fmt.Sprintf("process %d: %v", pid, why))
}

// tellEnd tells who wait for the end, and the result, in which processes the tracer stays.
func (s *session) tellEnd() {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	s.res.Stays = slices.Clone(s.control.stay)
	answer := "ok"
	if len(s.control.stay) > 0 {
		answer = "error 0: " + strings.ReplaceAll(strings.Join(s.control.stay, "; "), "\n", ", ")
	}
	for _, c := range s.control.part {
		_ = c.SetWriteDeadline(time.Now().Add(endPatience))
		_, _ = fmt.Fprintln(c, answer)
		c.Close()
	}
	s.control.part = nil
}

// answer serves one line.
func (s *session) answer(c *net.UnixConn) {
	waits := false
	defer func() {
		if !waits {
			c.Close()
		}
	}()
	if _, err := trusted(c); err != nil {
		return
	}
	s.listen(c, true)
	defer s.listen(c, false)
	line, err := bufio.NewReader(io.LimitReader(c, mostCommand)).ReadString('\n')
	if err != nil && len(line) < mostCommand {
		return
	}
	answer, e := "", &ControlError{mostCommand, fmt.Sprintf("a line has at most %d bytes", mostCommand)}
	if err == nil {
		if answer, e = s.obey(strings.TrimSuffix(line, "\n")); answer == unload && e == nil {
			waits = s.waitForEnd(c)
			return
		}
	}
	if answer = "ok " + answer; e != nil {
		answer = fmt.Sprintf("error %d: %s", e.Column, e.Why)
	}
	_ = c.SetWriteDeadline(time.Now().Add(controlPatience))
	answer = strings.ReplaceAll(strings.TrimSuffix(answer, " "), "\n", " ")
	_, _ = fmt.Fprintln(c, answer[:min(len(answer), mostAnswer-1)])
}

// obey does what a line says, or nothing.
func (s *session) obey(line string) (answer string, err *ControlError) {
	cs, err := parseCommands(line)
	if err != nil {
		return "", err
	}
	if cs[0].op.text != "" {
		return s.set(cs)
	}
	switch c := &cs[0]; c.name.text {
	case "detach":
		if len(c.values) > 0 {
			answer = unload
		}
		s.control.once.Do(func() { close(s.control.detach) })
		return answer, nil
	case "ping":
		return "", nil
	case "settle":
		return s.settleNow(c)
	case "status":
		return s.status(), nil
	case "dump":
		return s.dumpNow(c)
	default:
		return s.tell(c.name.text), nil
	}
}

// dumpNow makes a dump, and answers with its directory.
func (s *session) dumpNow(c *command) (string, *ControlError) {
	if s.flight == nil {
		return "", &ControlError{c.name.at, "its recorder is no flight recorder (record --flight)"}
	}
	d, err := s.flight.askDump("fentry dump", c.last)
	if err != nil {
		return "", &ControlError{0, err.Error()}
	}
	dir, err := filepath.Abs(d.Dir)
	if err != nil {
		dir = d.Dir
	}
	return dir, nil
}
