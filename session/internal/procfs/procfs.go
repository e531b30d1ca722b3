//go:build linux

package procfs

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// procStat is what a session needs of /proc/PID/stat (proc(5)).
type procStat struct {
	Name     string // of the task
	State    byte   // as of proc_pid_stat(5)
	Parent   int
	Start    uint64 // clock ticks after boot
	ExitCode int    // as of wait(2), of a process that nobody has waited for; 0 also if the reader may not know it
	Kernel   bool   // a thread of the kernel's own
	Worker   bool   // by which the kernel works for a process (io_uring, vhost): it runs none of its code
	Exiting  bool   // it is on its way out
	Killed   bool   // by a signal
}

// Dead tells states of tasks that execute nothing any more.
func (s procStat) Dead() bool { return s.State == 'Z' || s.State == 'X' || s.State == 'x' }

// parseStat parses the contents of a stat file. The name of the program, in
// parentheses, can hold anything.
func parseStat(b []byte) (procStat, error) {
	var s procStat
	at := bytes.LastIndexByte(b, ')')
	if at < 0 {
		return s, fmt.Errorf("stat: no program name")
	}
	if from := bytes.IndexByte(b[:at], '('); from >= 0 {
		s.Name = string(b[from+1 : at])
	}
	f := bytes.Fields(b[at+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return s, fmt.Errorf("stat: %d fields after the name", len(f))
	}
	s.State = f[0][0]
	var err error
	if s.Start, err = strconv.ParseUint(string(f[19]), 10, 64); err != nil { // field 22
		return s, err
	}
	if s.Parent, err = strconv.Atoi(string(f[1])); err != nil { // field 4
		return s, err
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64) // field 9
	if err != nil {
		return s, err
	}
	// PF_EXITING, PF_IO_WORKER, PF_SIGNALED, PF_USER_WORKER, PF_KTHREAD of Linux's sched.h
	const exiting, ioWorker, signaled, userWorker, kthread = 0x4, 0x10, 0x400, 0x4000, 0x200000
	s.Kernel = flags&kthread != 0
	s.Worker, s.Exiting, s.Killed = flags&(ioWorker|userWorker) != 0, flags&exiting != 0, flags&signaled != 0
	if len(f) > 49 { // field 52, from Linux 3.5
		s.ExitCode, err = strconv.Atoi(string(f[49]))
	}
	return s, err
}

// ReadOnce returns what one read of a file into b has.
func ReadOnce(path string, b []byte) ([]byte, error) {
	// Not through package os: this is done for many processes, and its files are
	// made ready for polling first.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, err
	}
	return b[:n], nil
}

func ReadStat(path string) (procStat, error) {
	b, err := ReadOnce(path, make([]byte, 1024))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// IsProcess tells whether an id is a process's, which may have ended if nobody has waited for it. A thread's is not, though
// /proc has a directory for it, which is like its process's and is not listed.
func IsProcess(pid int) bool { return unix.Tgkill(pid, pid, 0) != unix.ESRCH }

// ReadProcess is ReadStat of a process.
func ReadProcess(pid int) (procStat, error) {
	s, err := ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil && !IsProcess(pid) {
		err = fmt.Errorf("%d is no process: %w", pid, unix.ESRCH)
	}
	return s, err
}

// User is the user whose a process is; ok is false if it has ended.
func User(pid int) (uid int, ok bool) {
	var st unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &st)
	return int(st.Uid), err == nil
}

// EffectiveUser is the user in whose name a process opens files; ok is false if that is not known.
func EffectiveUser(pid int) (uid int, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	f := ids(b, "\nUid:")
	if len(f) < 2 {
		return 0, false
	}
	uid, err = strconv.Atoi(string(f[1]))
	return uid, err == nil
}

// SameUser tells whether a process is this one's user's and group's in every respect, or this is root: the kernel then
// hides nothing of a process that has ended.
func SameUser(pid int) bool {
	if os.Geteuid() == 0 {
		return true
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	return all(b, "\nUid:", os.Geteuid()) && all(b, "\nGid:", os.Getegid())
}

// all tells whether the real, effective, saved and file system's id in a line of a status file are id.
func all(status []byte, key string, id int) bool {
	fields := ids(status, key)
	for _, f := range fields {
		if string(f) != strconv.Itoa(id) {
			return false
		}
	}
	return len(fields) == 4
}

// ids are those in a line of a status file.
func ids(status []byte, key string) [][]byte {
	_, rest, _ := bytes.Cut(status, []byte(key))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return bytes.Fields(line)
}

// IgnoredBy is the set of signals a process ignores, from /proc/PID/status.
func IgnoredBy(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	set, err := signalSet(b, "SigIgn")
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// signalSet is a set of signals in a status file.
func signalSet(status []byte, key string) (uint64, error) {
	_, rest, ok := bytes.Cut(status, []byte("\n"+key+":"))
	if !ok {
		return 0, fmt.Errorf("no %s", key)
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
}

// TaskDead tells whether a thread certainly executes nothing any more.
func TaskDead(pid, tid int) bool {
	if err := unix.Tgkill(pid, tid, 0); err == unix.ESRCH {
		return true
	}
	// A process not yet waited for still takes signals, in the name of its first
	// thread. The others are gone when they have ended.
	if tid != pid {
		return false
	}
	s, err := ReadStat(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	return err == nil && s.Dead()
}

// ProcessorTime is how long a thread has had a processor since it began, in nanoseconds: the first number of its schedstat.
// While it runs that is brought up to date by the timer's interrupts. ok is false if the thread has ended, or the kernel
// does not count.
func ProcessorTime(pid, tid int) (ns uint64, ok bool) {
	b, err := ReadOnce(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid), make([]byte, 64))
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(b, []byte(" "))
	ns, err = strconv.ParseUint(string(first), 10, 64)
	return ns, err == nil && ns != 0
}

// ProcessAlive tells whether a process that began at start has a thread that is
// not dead. A main thread can be gone while others go on.
func ProcessAlive(pid int, start uint64) bool {
	dir := fmt.Sprintf("/proc/%d", pid)
	s, err := ReadStat(dir + "/stat")
	if err != nil || s.Start != start {
		return false
	}
	if !s.Dead() {
		return true
	}
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		if s, err := ReadStat(dir + "/task/" + t.Name() + "/stat"); err == nil && !s.Dead() {
			return true
		}
	}
	return false
}

// SharedFile is memory that traced processes map.
type SharedFile struct {
	Inode uint64
	Path  string // as /proc/PID/maps shows it
}

// MappedBy tells whether a process maps the file. known is false if that cannot
// be seen: the process is another user's or not dumpable. The id of a thread is no process's.
func (f SharedFile) MappedBy(pid int) (mapped, known bool) {
	if !IsProcess(pid) {
		return false, true
	}
	mapped, some, err := f.mappedIn(fmt.Sprintf("/proc/%d/maps", pid))
	if err == nil && !some {
		mapped, _, err = f.mappedIn(Dir(pid) + "/maps")
	}
	if err != nil {
		return false, os.IsNotExist(err) || isESRCH(err)
	}
	return mapped, true
}

// mappedIn looks for the file in a maps file, and whether that has anything.
func (f SharedFile) mappedIn(path string) (mapped, some bool, err error) {
	maps, err := os.Open(path)
	if err != nil {
		return false, false, err
	}
	defer maps.Close()
	if mapped, err = f.query(maps); err == nil {
		return mapped, true, nil
	}
	b, err := io.ReadAll(maps)
	return f.in(b), len(b) > 0, err
}

// in looks for the file in the contents of a maps file.
func (f SharedFile) in(maps []byte) bool {
	name := []byte(f.Path)
	for line := range bytes.Lines(maps) {
		// address perms offset dev inode path
		if !bytes.HasSuffix(bytes.TrimSuffix(line, []byte("\n")), name) {
			continue
		}
		fields := bytes.Fields(line)
		if len(fields) >= 6 && string(fields[4]) == strconv.FormatUint(f.Inode, 10) {
			return true
		}
	}
	return false
}

func isESRCH(err error) bool {
	pe, ok := err.(*os.PathError)
	return ok && pe.Err == unix.ESRCH
}

// Mappers finds every process that maps the file and began at or after start.
func (f SharedFile) Mappers(start uint64) []Process { return f.mappers(start, false, nil) }

// MayMap also finds those of which that cannot be seen.
func (f SharedFile) MayMap(start uint64) []Process { return f.mappers(start, true, nil) }

// MappersBut finds those processes that map the file of which a quick look does not say that they do not matter: maps take long
// to read, and there can be thousands of processes.
func (f SharedFile) MappersBut(not func(pid int) bool) []Process { return f.mappers(0, false, not) }

// pids are those of all processes, in the order of /proc.
func pids() (all []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

func (f SharedFile) mappers(start uint64, unseen bool, not func(pid int) bool) []Process {
	self := os.Getpid()
	var found []Process
	for _, pid := range pids() {
		if pid == self || not != nil && not(pid) {
			continue
		}
		s, err := ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || s.Start < start {
			continue
		}
		if mapped, known := f.MappedBy(pid); mapped || unseen && !known {
			inner, _ := InnerPID(pid)
			found = append(found, Process{Pid: pid, Inner: inner, Start: s.Start})
		}
	}
	return found
}

// Process is a traced process.
type Process struct {
	Pid   int
	Inner int // its id as it sees it itself; differs in another PID namespace
	Start uint64
}

// InnerPID is a process's id as it sees it itself, and whether it is in a PID namespace below this one.
func InnerPID(pid int) (inner int, below bool) {
	if inner, ok := innermost(fmt.Sprintf("/proc/%d/status", pid)); ok && inner != 0 {
		return inner, true
	}
	return pid, false
}

// Threads are the ids of a process's threads.
func Threads(pid int) (tids []int, err error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		if tid, err := strconv.Atoi(task.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// InnerThread is the id of a thread as its process sees it; ok is false if that is not known, as when it has ended.
func InnerThread(pid, tid int) (inner int, ok bool) {
	inner, ok = innermost(fmt.Sprintf("/proc/%d/task/%d/status", pid, tid))
	if ok && inner == 0 {
		inner = tid
	}
	return inner, ok
}

// innermost is the last of the ids in the NSpid line of a status file, 0 if there is one alone: then it is the one here.
func innermost(status string) (id int, ok bool) {
	b, err := os.ReadFile(status)
	if err != nil {
		return 0, false
	}
	_, rest, ok := bytes.Cut(b, []byte("\nNSpid:"))
	if !ok {
		return 0, false
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := bytes.Fields(line)
	if len(ids) < 2 {
		return 0, true
	}
	id, err = strconv.Atoi(string(ids[len(ids)-1]))
	return id, err == nil
}

// PIDNamespace is the number of the PID namespace that a process is in; 0: it is not known.
func PIDNamespace(pid int) (number uint64) {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscanf(link, "pid:[%d]", &number); err != nil {
		return 0
	}
	return number
}

// Inside returns the id here of the process that maps the file, began at start or later, and sees itself as inner in a
// PID namespace. If the number of that is not known, 0, only one may do so. ok is false if there is none.
func (f SharedFile) Inside(namespace uint64, inner int, start uint64) (pid int, ok bool) {
	for _, id := range slices.Backward(pids()) { // the newest come last
		if !f.Is(id, namespace, inner) {
			continue
		}
		if s, err := ReadStat(fmt.Sprintf("/proc/%d/stat", id)); err != nil || s.Start < start {
			continue
		}
		if namespace != 0 {
			return id, true
		}
		if ok {
			return 0, false
		}
		pid, ok = id, true
	}
	return pid, ok
}

// Is tells whether a process maps the file and sees itself as inner in a PID namespace, whose number can be unknown, 0.
func (f SharedFile) Is(pid int, namespace uint64, inner int) bool {
	if namespace != 0 && PIDNamespace(pid) != namespace {
		return false
	}
	if id, _ := InnerPID(pid); id != inner {
		return false
	}
	mapped, _ := f.MappedBy(pid)
	return mapped
}

// Thread is the id here of the thread of a process that sees itself as inner.
func Thread(pid, inner int) (tid int, err error) {
	if _, below := InnerPID(pid); !below {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", pid, inner))
		return inner, err
	}
	tids, err := Threads(pid)
	if err != nil {
		return 0, err
	}
	for _, tid := range tids {
		if id, _ := InnerPID(tid); id == inner {
			return tid, nil
		}
	}
	return 0, fmt.Errorf("%d has no thread that sees itself as %d", pid, inner)
}

// Descends tells whether a process is an ancestor of another one.
func Descends(pid, ancestor int) bool {
	for p := range Line(pid) {
		if p == ancestor && p != pid {
			return true
		}
	}
	return false
}

// Line are the ids of a process, its parent, and so on.
func Line(pid int) iter.Seq[int] {
	const most = 1024 // ids are used again meanwhile
	return func(yield func(int) bool) {
		for range most {
			if !yield(pid) {
				return
			}
			s, err := ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || s.Parent == 0 {
				return
			}
			pid = s.Parent
		}
	}
}
