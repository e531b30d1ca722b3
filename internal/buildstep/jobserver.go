package buildstep

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// slots is a connection to the job server of GNU make (GNU make manual, "POSIX Jobserver Interaction"): a pipe with a
// byte for every job that may run beside the one a recipe is allowed anyway. A nil slots has no limit.
type slots struct {
	r, w int
}

// openSlots connects to the job server MAKEFLAGS names. Without one, and where make has closed its descriptors because
// the recipe is not marked as recursive, there is no limit of make's.
func openSlots() *slots {
	auth := jobserverAuth(os.Getenv("MAKEFLAGS"))
	if auth == "" {
		return nil
	}
	if path, ok := strings.CutPrefix(auth, "fifo:"); ok {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil
		}
		if !isPipe(fd) { // reading and writing bytes of a file would change it
			unix.Close(fd)
			return nil
		}
		return &slots{fd, fd}
	}
	rs, ws, ok := strings.Cut(auth, ",")
	if !ok {
		return nil
	}
	r, err1 := strconv.Atoi(rs)
	w, err2 := strconv.Atoi(ws)
	if err1 != nil || err2 != nil || !isPipe(r) || !isPipe(w) {
		return nil
	}
	// The pipe is shared with make, which must not find it non-blocking: a file description of our own.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", r), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &slots{fd, w}
}

func isPipe(fd int) bool {
	var st unix.Stat_t
	return fd >= 0 && unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO
}

// jobserverAuth returns the value of the last --jobserver-auth or, before make 4.2, --jobserver-fds.
func jobserverAuth(flags string) (auth string) {
	for _, w := range strings.Fields(flags) {
		for _, o := range []string{"--jobserver-auth=", "--jobserver-fds="} {
			if v, ok := strings.CutPrefix(w, o); ok {
				auth = v
			}
		}
	}
	return auth
}

// acquire takes a slot if one is free at the moment: waiting for one would only make the files wait.
func (s *slots) acquire() (release func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	var b [1]byte
	for {
		n, err := unix.Read(s.r, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			return nil, false
		}
		return func() { s.release(b[:]) }, true
	}
}

// release gives a slot back. Losing one would make the whole build slower, so it is tried until it works.
func (s *slots) release(b []byte) {
	for {
		_, err := unix.Write(s.w, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			unix.Poll([]unix.PollFd{{Fd: int32(s.w), Events: unix.POLLOUT}}, -1)
		default:
			return
		}
	}
}

func (s *slots) close() {
	if s != nil {
		unix.Close(s.r)
	}
}
