package buildstep

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// slots is a connection to the job server of GNU make (GNU make manual, "POSIX Jobserver Interaction"): a pipe with a
// byte for every job that may run beside the one a recipe is allowed anyway. A nil slots has no limit.
//
// A byte that is not given back is a job less for the rest of the build, and when all are gone the build only crawls.
// So a signal that ends the process gives back first what is held; only SIGKILL cannot be told.
type slots struct {
	r, w int

	mu      sync.Mutex
	held    []byte
	signals chan os.Signal
}

// endings are the signals with which people, make and batch systems end a process.
var endings = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}

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
		return newSlots(fd, fd)
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
	return newSlots(fd, w)
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

// newSlots begins to watch for the signals. Those that are ignored, by nohup for example, stay so.
func newSlots(r, w int) *slots {
	s := &slots{r: r, w: w, signals: make(chan os.Signal, 1)}
	for _, sig := range endings {
		if !signal.Ignored(sig) {
			signal.Notify(s.signals, sig)
		}
	}
	go func() {
		sig, ok := <-s.signals
		if !ok {
			return
		}
		s.mu.Lock() // for good: nothing is acquired any more
		s.giveBack(len(s.held))
		signal.Reset(sig)
		unix.Kill(unix.Getpid(), sig.(unix.Signal))
	}()
	return s
}

// acquire takes a slot if one is free at the moment: waiting for one would only make the files wait.
func (s *slots) acquire() (release func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b [1]byte
	for {
		n, err := unix.Read(s.r, b[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n != 1 || err != nil {
			return nil, false
		}
		s.held = append(s.held, b[0])
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.giveBack(1)
		}, true
	}
}

// giveBack returns n of the bytes held. It is tried until it works.
func (s *slots) giveBack(n int) {
	for n > 0 {
		k, err := unix.Write(s.w, s.held[len(s.held)-n:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			unix.Poll([]unix.PollFd{{Fd: int32(s.w), Events: unix.POLLOUT}}, -1)
		case err != nil:
			return
		}
		if k > 0 {
			s.held = slices.Delete(s.held, len(s.held)-n, len(s.held)-n+k)
			n -= k
		}
	}
}

func (s *slots) close() {
	if s != nil {
		signal.Stop(s.signals)
		close(s.signals)
		unix.Close(s.r)
	}
}
