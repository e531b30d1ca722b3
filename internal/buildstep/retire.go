package buildstep

import "golang.org/x/sys/unix"

// retired keeps replaced files open until a worker of Run ends. A file system such as ext4 does not give the number of a
// freed file to a new one for some minutes, and looks at every such number again for each file that is created: replacing
// n files one after another costs n*n. Files that still are open have not been freed.
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

// newRetired is for one of several workers.
func newRetired(workers int) *retired {
	files := uint64(256)
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
		files = min(lim.Cur/2, retiredFiles)
	}
	return &retired{maxFiles: int(files) / workers, maxBytes: retiredBytes / int64(workers)}
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
