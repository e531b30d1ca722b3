package buildstep

import (
	"sync"

	"golang.org/x/sys/unix"
)

// retired keeps replaced files open until Run ends. A file system such as ext4 does not give the number of a freed
// file to a new one for a while, and looks at every such number again for each file that is created: replacing n files
// one after another costs n*n. Files that still are open have not been freed.
type retired struct {
	mu    sync.Mutex
	fds   []int
	bytes int64
}

// Limits of what is kept: descriptors of the process, and space that others may need.
const (
	retiredFiles = 256
	retiredBytes = 64 << 20
)

// keep takes over a descriptor.
func (r *retired) keep(fd int, size int64) {
	unix.Flock(fd, unix.LOCK_UN)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fds = append(r.fds, fd)
	r.bytes += size
	if len(r.fds) >= retiredFiles || r.bytes >= retiredBytes {
		r.release()
	}
}

// close closes all that is kept.
func (r *retired) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.release()
}

func (r *retired) release() {
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	r.fds, r.bytes = r.fds[:0], 0
}
