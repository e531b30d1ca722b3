//go:build linux

package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/osthread"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/launch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
	"github.com/fentry-dev/fentry/session/internal/tracee"
)

// CanFollow reports whether programs that traced ones execute can be traced on this machine.
func CanFollow() bool { return tracee.Follows }

// Follow says what becomes of programs that a traced program executes, and that do not trace themselves.
type Follow struct {
	// Plan returns what is put into a program at its exec stop: path is the one by which it was executed, or that of its
	// file, which for a script is its interpreter's. nil: it runs untraced. Plan is called from several goroutines at once; the
	// processes wait for it.
	Plan func(path string, exe *os.File) *patch.Memory
	// Whole returns what was put into the program of a file once more, with its places, as [Options].Whole does; nil: it is not
	// known. It is asked at the end, of programs that go on.
	Whole func(exe *os.File) *patch.Memory
	// Ahead is told what is about to be executed, which it may not be after all: Plan is called soon, with the same. It can be
	// called from several goroutines at once. nil: nobody is.
	Ahead func(path string, exe *os.File)
	// Left is told of programs that are not asked for, because they cannot be traced, and why. It can be called from
	// several goroutines at once.
	Left func(path string, why error)
	// Loader is the path of the program's dynamic loader. The C library beside it is looked at ahead of time; "": none is.
	Loader string
}

// follower traces programs that traced ones execute: a thread asks before it does, and is traced from then until the
// program begins (tracee.Execute). What a process says is believed only if it maps the pool, and what is traced then is
// that process and nothing else. Between two such moments nobody is traced, and what a recorder that dies leaves behind
// goes on.
type follower struct {
	o      *Follow
	shared procfs.SharedFile
	pool   int // the buffer's descriptor
	// asks returns the id here of a process that has asked.
	asks func(pid int, namespace uint64) (host int, ok bool)
	// join is told of processes that are traced and see themselves as inner.
	join   func(inner, host int)
	reaped func(pid int, status syscall.WaitStatus)
	logf   func(format string, args ...any)
	hooks  tracee.ExecHooks
	// library is Options.Library; nil: programs keep their libraries.
	library func(path string, f *os.File) *os.File
	// onlySwaps is Options.OnlySwaps.
	onlySwaps bool

	mu    sync.Mutex
	begun uint64 // how many programs were followed
	busy  int    // how many are being
	over  bool   // no more are
	said  map[string]bool
	idle  sync.WaitGroup
}

// handle answers a program's request.
func (f *follower) handle(r *drain.Request) uint32 {
	pid, ok := f.asks(r.PID, r.NS)
	if !ok {
		f.o.Left(fmt.Sprintf("process %d of a PID namespace", r.PID), errNotFound)
		return drain.Failed
	}
	if mapped, _ := f.shared.MappedBy(pid); !mapped {
		return drain.Failed
	}
	var err error
	tells := r.Kind == format.AskPlace && r.Argument != 0 // a Go program, whose own code tells: there need be no other
	switch r.Kind {
	case format.AskPlace:
		r.Argument, err = f.hooks.Place(pid)
	case format.AskFollow:
		err = f.hooks.Follow(pid, r.Argument)
	default:
		return f.executes(pid, r)
	}
	if err == tracee.ErrFar {
		return drain.Later // the process asks for a place
	}
	if err != nil && !tells {
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		f.o.Left(exe, fmt.Errorf("programs that it executes are not followed: %w", err))
	}
	if err != nil {
		return drain.Failed
	}
	return drain.Done
}

// executes begins to trace the thread that asks: the argument is where in its memory it says what it is about to execute.
func (f *follower) executes(pid int, r *drain.Request) uint32 {
	call, err := tracee.ReadExecCall(pid, r.Argument)
	if err != nil {
		return drain.Failed
	}
	if fi, err := os.Stat(call.File(pid)); err == nil && !fi.Mode().IsRegular() {
		return drain.Failed // so does the call
	}
	if err := privileged(pid, call.File(pid), 0); err != nil {
		f.o.Left(call.Path, err)
		return drain.Failed
	}
	f.mu.Lock()
	over := f.over
	if !over {
		f.busy++
		f.begun++
		f.idle.Add(2)
	}
	f.mu.Unlock()
	if over {
		return drain.Failed
	}
	go f.ahead(call.File(pid), call.Path)
	held := make(chan error, 1)
	// ptrace knows tracers by thread. The answer is given by that thread: it has the process go on at once, and the one that handles
	// requests may wait for a processor.
	osthread.Go(func() {
		f.follow(pid, &call, func(err error) {
			if err == nil {
				r.Answer(drain.Done)
			}
			held <- err
		})
	})
	if err := <-held; err != nil {
		if !errors.Is(err, tracee.ErrNotExecuted) {
			f.o.Left(call.Path, err)
		}
		return drain.Failed
	}
	return drain.Done
}

// ahead says that a file is about to be executed by a path.
func (f *follower) ahead(file, path string) {
	defer f.idle.Done()
	if f.o.Ahead == nil {
		return
	}
	exe, err := safefile.Open(file)
	if err != nil {
		return
	}
	defer exe.Close()
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", exe.Fd()))
	if err != nil {
		return
	}
	f.o.Ahead(known(path, name, exe), exe)
}

// mostInterpreters is more than the kernel allows: scripts whose interpreters are scripts.
const mostInterpreters = 6

var (
	errPrivileges = errors.New("it has the privileges of its file, and would lose them")
	errNotFound   = errors.New("which process it is here is not known, and so not what it executes")
	errUnknown    = errors.New("whether it has privileges of its file is not known")
	errOtherUser  = errors.New("it is another user's, who is not to see what is recorded of this one's")
)

// privileged returns why a program must not be traced: it would not get the privileges of its file, or of its
// interpreter's. A program that does not exist or is none has none.
func privileged(pid int, file string, depth int) error {
	if launch.LosesPrivileges(file) {
		return errPrivileges
	}
	f, err := safefile.Open(file)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil // it can be executed all the same; a script could not be read by its interpreter
	case err != nil || depth > mostInterpreters:
		return errUnknown
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 256).Peek(256) // BINPRM_BUF_SIZE
	if len(line) == 0 && err != nil || !bytes.HasPrefix(line, []byte("#!")) {
		return nil
	}
	line, _, _ = bytes.Cut(line[2:], []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return nil
	}
	interpreter := fmt.Sprintf("/proc/%d/root%s", pid, words[0])
	if !filepath.IsAbs(words[0]) {
		interpreter = fmt.Sprintf("/proc/%d/cwd/%s", pid, words[0])
	}
	return privileged(pid, interpreter, depth+1)
}

// follow traces a thread until it has executed a program, and puts into that what is planned for it. held is told nil when
// the thread is traced, or the reason why it cannot be.
func (f *follower) follow(pid int, call *tracee.ExecCall, held func(error)) {
	defer f.done()
	t, err := tracee.Seize(pid, call.TID)
	var died *tracee.EndedError
	held(err)
	if err == nil {
		err = t.Execute()
	}
	if errors.As(err, &died) {
		f.reaped(pid, died.Status)
		return
	}
	if t == nil {
		return
	}
	if err == nil {
		err = f.begins(t, pid, call.Path)
	}
	switch {
	case err == nil, errors.Is(err, tracee.ErrNotExecuted):
	case errors.As(err, &died):
		f.reaped(pid, died.Status)
		return
	default:
		f.o.Left(call.Path, err)
	}
	if err := t.Detach(); err != nil {
		f.logf("%s: %v", call.Path, err)
	}
}

// begins puts the tracer into a program that has just been executed.
func (f *follower) begins(t *tracee.Process, pid int, path string) error {
	inner, below := procfs.InnerPID(pid)
	if user, ok := procfs.EffectiveUser(pid); ok && !below && user != os.Geteuid() {
		return errOtherUser // the runtime would be refused the buffer
	}
	m := f.plan(pid, path)
	if m == nil {
		return nil
	}
	pool := -1
	if below {
		f.join(inner, pid)
	}
	if below || !f.opens(pid, m) {
		pool = f.pool
	}
	err := t.InjectExecuted(m, pool)
	var died *tracee.EndedError
	if err != nil && !errors.As(err, &died) && t.Changed() {
		t.Kill()
		return fmt.Errorf("it was ended, because it could not be changed as a whole: %w", err)
	}
	if err == nil && f.library != nil && (!f.onlySwaps || m.LoadsSwaps != 0) {
		err = f.load(t, m, path)
	}
	return err
}

// opens reports whether a process that sees the ids of this PID namespace finds the buffer where a plan says: it has a /proc
// of it, if it has another root or other mounts.
func (f *follower) opens(pid int, m *patch.Memory) bool {
	path, _, _ := bytes.Cut(m.SessionPath(), []byte{0})
	is, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, path))
	if err != nil {
		return false
	}
	st, ok := is.Sys().(*syscall.Stat_t)
	return ok && st.Ino == f.shared.Inode
}

// load gives the program's dynamic loader patched libraries, until the program begins.
func (f *follower) load(t *tracee.Process, m *patch.Memory, path string) error {
	unknown := func(what string) func(error) {
		return func(err error) { f.sayOnce("%s: %s: %v", path, what, err) }
	}
	err := t.Load(m, launch.Substitute(f.library), unknown("libraries that it loads later are not traced"),
		unknown("system calls of its dynamic loader are not recorded"))
	var died *tracee.EndedError
	switch {
	case errors.As(err, &died):
		return err
	case err != nil && !errors.Is(err, tracee.ErrNoLoader):
		f.sayOnce("%s: libraries that it loads from then on are not traced: %v", path, err)
	}
	return nil
}

// mostSaid is more messages than anybody reads.
const mostSaid = 1000

// sayOnce tells people something that can happen to a program each time that it is executed.
func (f *follower) sayOnce(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.mu.Lock()
	known := f.said[text] || len(f.said) >= mostSaid
	if f.said == nil {
		f.said = make(map[string]bool)
	}
	f.said[text] = true
	f.mu.Unlock()
	if !known {
		f.logf("%s", text)
	}
}

// plan asks for what is put into the program that a process runs, which was executed by a path; nil: nothing.
func (f *follower) plan(pid int, path string) *patch.Memory {
	link := fmt.Sprintf("/proc/%d/exe", pid)
	name, err := os.Readlink(link)
	if err != nil {
		return nil
	}
	exe, err := safefile.Open(link)
	if err != nil {
		f.o.Left(name, errors.New("it cannot be read"))
		return nil
	}
	defer exe.Close()
	m := f.o.Plan(known(path, name, exe), exe)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil
	}
	return m
}

// known is the name by which people know a file: as, not x86_64-linux-gnu-as.
func known(path, name string, exe *os.File) string {
	if isFile(path, exe) {
		return path
	}
	return name
}

// isFile tells whether an absolute path leads to an open file here.
func isFile(path string, f *os.File) bool {
	there, err := os.Stat(path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return false
	}
	fi, err := f.Stat()
	return err == nil && os.SameFile(there, fi)
}

// done notes that one less is being followed.
func (f *follower) done() {
	f.mu.Lock()
	f.busy--
	f.mu.Unlock()
	f.idle.Done()
}

// state tells how many programs were followed so far, and whether one is being: a process that executes one does not map
// the pool for a moment.
func (f *follower) state() (begun uint64, busy bool) {
	if f == nil {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun, f.busy > 0
}

// end follows no more programs. Those that are being followed are waited for by wait.
func (f *follower) end() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
}

func (f *follower) wait() {
	if f != nil {
		f.idle.Wait()
	}
}
