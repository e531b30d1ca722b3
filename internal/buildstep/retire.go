package buildstep

import "golang.org/x/sys/unix"

// retired keeps replaced files open until a worker of Run ends. A file system such as ext4 does not give the number of
// a freed file to a new one for some minutes, and looks at every such number again for each file that is created:
// replacing n files one after another costs n*n. Files that still are open have not been freed.
type retired struct {
	fds      []int
	bytes    int64
	maxFiles int
	maxBytes int64
}

// Limits of what all workers keep, beside half of the descriptors the process may have: space that others may need.
const (
	retiredFiles = 1 << 14
	retiredBytes = 256 << 20
)

// retiredMax is how many files all workers may keep.
func retiredMax() int {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 256
	}
	return int(min(lim.Cur/2, retiredFiles))
}

// newRetired is for one of several workers.
func newRetired(workers int) *retired {
	return &retired{maxFiles: retiredMax() / workers, maxBytes: retiredBytes / int64(workers)}
}

// smallTable is how many descriptors every process has room for (NR_OPEN_DEFAULT of Linux, on 64-bit machines).
const smallTable = 64

// widen makes room for n descriptors more at once. The table of a process doubles when it is full, and if the process
// has threads each step waits until every processor has left the old table, some milliseconds.
func widen(n int) {
	fd, err := unix.Open(".", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it is only for speed
	}
	defer unix.Close(fd)
	if top, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, fd+n); err == nil {
		unix.Close(top)
	}
}

// keep takes over a descriptor.
func (r *retired) keep(fd int, size int64) {
	unix.Flock(fd, unix.LOCK_UN)
	r.fds = append(r.fds, fd)
	r.bytes += size
	if len(r.fds) >= r.maxFiles || r.bytes >= r.maxBytes {
		r.release()
	}
}

// release closes all that is kept, and reports whether that was anything.
func (r *retired) release() bool {
	if r == nil || len(r.fds) == 0 {
		return false
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	r.fds, r.bytes = r.fds[:0], 0
	return true
}
