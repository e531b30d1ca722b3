//go:build linux

package session

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// procStat is what a session needs of /proc/PID/stat (proc(5)).
type procStat struct {
	state byte
	start uint64 // clock ticks after boot
}

// dead tells states of tasks that execute nothing any more.
func (s procStat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// parseStat parses the contents of a stat file. The name of the program, in
// parentheses, can hold anything.
func parseStat(b []byte) (procStat, error) {
	var s procStat
	at := bytes.LastIndexByte(b, ')')
	if at < 0 {
		return s, fmt.Errorf("stat: no program name")
	}
	f := bytes.Fields(b[at+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return s, fmt.Errorf("stat: %d fields behind the name", len(f))
	}
	s.state = f[0][0]
	var err error
	s.start, err = strconv.ParseUint(string(f[19]), 10, 64) // field 22
	return s, err
}

func readStat(path string) (procStat, error) {
	// Not through package os: this is read of many processes, and its files are
	// made ready for polling first.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, err
	}
	defer unix.Close(fd)
	var b [1024]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b[:n])
}

// ignoredBy is the set of signals a process ignores, from /proc/PID/status.
func ignoredBy(pid int) (uint64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(b, []byte("\nSigIgn:"))
	if !ok {
		return 0, fmt.Errorf("%s: no SigIgn", path)
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
}

// taskDead tells whether a thread certainly executes nothing any more.
func taskDead(pid, tid int) bool {
	if err := unix.Tgkill(pid, tid, 0); err == unix.ESRCH {
		return true
	}
	// A process not yet waited for still takes signals.
	s, err := readStat(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	return err == nil && s.dead()
}

// processAlive tells whether a process that began at start has a thread that is
// not dead. A main thread can be gone while others go on.
func processAlive(pid int, start uint64) bool {
	dir := fmt.Sprintf("/proc/%d", pid)
	s, err := readStat(dir + "/stat")
	if err != nil || s.start != start {
		return false
	}
	if !s.dead() {
		return true
	}
	tasks, err := os.ReadDir(dir + "/task")
	if err != nil {
		return false
	}
	for _, t := range tasks {
		if s, err := readStat(dir + "/task/" + t.Name() + "/stat"); err == nil && !s.dead() {
			return true
		}
	}
	return false
}

// sharedFile is memory that traced processes map.
type sharedFile struct {
	inode uint64
	path  string // as /proc/PID/maps shows it
}

// mappedBy tells whether a process maps the file. known is false if that cannot
// be seen: the process is another user's or not dumpable.
func (f sharedFile) mappedBy(pid int) (mapped, known bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, os.IsNotExist(err) || isESRCH(err)
	}
	return f.in(b), true
}

// in looks for the file in the contents of a maps file.
func (f sharedFile) in(maps []byte) bool {
	name := []byte(f.path)
	for line := range bytes.Lines(maps) {
		// address perms offset dev inode path
		if !bytes.HasSuffix(bytes.TrimSuffix(line, []byte("\n")), name) {
			continue
		}
		fields := bytes.Fields(line)
		if len(fields) >= 6 && string(fields[4]) == strconv.FormatUint(f.inode, 10) {
			return true
		}
	}
	return false
}

func isESRCH(err error) bool {
	pe, ok := err.(*os.PathError)
	return ok && pe.Err == unix.ESRCH
}

// mappers finds every process that maps the file and began at or after start.
func (f sharedFile) mappers(start uint64) []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	self := os.Getpid()
	var found []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		s, err := readStat("/proc/" + name + "/stat")
		if err != nil || s.start < start {
			continue
		}
		if mapped, _ := f.mappedBy(pid); mapped {
			found = append(found, process{pid: pid, inner: innermostPID(pid), start: s.start})
		}
	}
	return found
}

// process is a traced process.
type process struct {
	pid   int
	inner int // its id as it sees it itself; differs in another PID namespace
	start uint64
}

// innermostPID is the last of the ids in the NSpid line of /proc/PID/status.
func innermostPID(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return pid
	}
	_, rest, ok := bytes.Cut(b, []byte("\nNSpid:"))
	if !ok {
		return pid
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := bytes.Fields(line)
	if len(ids) == 0 {
		return pid
	}
	if n, err := strconv.Atoi(string(ids[len(ids)-1])); err == nil {
		return n
	}
	return pid
}
