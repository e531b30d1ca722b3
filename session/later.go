//go:build linux

package session

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// request answers a program's request.
func (s *session) request(r *drain.Request) uint32 {
	switch r.Kind {
	case format.AskLibrary:
		if s.later != nil {
			return s.later.handle(r)
		}
	case format.AskPlace, format.AskFollow, format.AskExec:
		if s.follow != nil {
			return s.follow.handle(r)
		}
	case format.AskLoaded:
		if s.attached != nil {
			return s.attached.loads.handle(r)
		}
	case format.AskDump:
		return s.flight.atCall(r)
	}
	return s.exes.handle(r)
}

// giveLibrary is library; nil if libraries are left alone.
func (s *session) giveLibrary() func(string, *os.File) *os.File {
	if s.o.Library == nil {
		return nil
	}
	return s.library
}

// library asks Options.Library.
func (s *session) library(path string, f *os.File) *os.File {
	s.libraryMu.Lock()
	defer s.libraryMu.Unlock()
	return s.o.Library(path, f)
}

// later answers processes whose dynamic loader has opened a file after the program has begun (stub/src/amd64/loader.c).
//
// A copy can take long to make, and the file system that a file is on need not answer at all. So what a process asks
// for is worked on in a goroutine of its own, which it is told to come back for; at most mostLater of them. What a
// process says is a descriptor: it is only believed if the process maps the pool, and what it gets is a copy of the
// file that it has opened, or nothing.
type later struct {
	shared procfs.SharedFile
	host   func(pid int, namespace uint64) (host int, ok bool) // the id here of a process that asks
	give   func(path string, f *os.File) *os.File
	logf   func(format string, args ...any)
	apart  sync.Once // it is said that some cannot be given a file

	header *pool.Pool // nil: the session's pool has the requests
	server *drain.Server
	served sync.WaitGroup

	mu   sync.Mutex
	asks map[ask]chan *os.File // nil from it: the file stays
}

// ask is what identifies a question: a process asks again until it has an answer.
type ask struct {
	pid  int
	fd   uint32
	path string // of the file
}

const (
	mostLater  = 64                    // questions that are worked on
	laterLimit = 60 * time.Millisecond // the program waits for a little longer before it comes back
	mostFD     = 1 << 30
)

func (s *session) newLater(shared procfs.SharedFile) *later {
	return &later{shared: shared, host: s.live.Asks, logf: s.logf, give: s.library, asks: make(map[ask]chan *os.File)}
}

// serve answers the requests of programs that write a file themselves, which have nothing else to ask for.
func (l *later) serve(events *os.File) (err error) {
	if l.header, err = pool.MapHeader(events); err != nil {
		return err
	}
	l.server = drain.NewServer(l.header, func(r *drain.Request) uint32 {
		if r.Kind != format.AskLibrary {
			return drain.Unsupported
		}
		return l.handle(r)
	})
	l.header.Word(format.HServer).Store(uint32(os.Getpid()))
	l.served.Go(func() {
		// A program can have truncated the file: then nobody is answered any more.
		_ = mapped.Guard(func() error { l.server.Run(); return nil })
	})
	return nil
}

// end ends that.
func (l *later) end() {
	if l == nil || l.server == nil {
		return
	}
	_ = mapped.Guard(func() error { l.header.Word(format.HServer).Store(0); return nil })
	l.server.Stop()
	l.served.Wait()
	l.header.Close()
	l.server = nil
}

// handle answers a request for what takes the place of a descriptor.
func (l *later) handle(r *drain.Request) uint32 {
	pid, ok := l.host(r.PID, r.NS)
	if mapped, _ := l.shared.MappedBy(pid); !ok || !mapped || r.Argument > mostFD {
		return drain.Failed
	}
	link := fmt.Sprintf("/proc/%d/fd/%d", pid, r.Argument)
	path, err := os.Readlink(link)
	if err != nil {
		return drain.Failed
	}
	a := ask{pid, uint32(r.Argument), path}
	c, ok := l.begin(a, link)
	if !ok {
		return drain.Failed
	}
	select {
	case f := <-c:
		l.mu.Lock()
		delete(l.asks, a)
		l.mu.Unlock()
		r.Argument = descriptor(f)
		return drain.Done
	case <-time.After(laterLimit):
		return drain.Later
	}
}

// sees tells whether a process sees this one in /proc: what it is given it opens there. What is mounted there may never
// answer.
func sees(pid int) bool {
	self, err := os.Readlink(fmt.Sprintf("/proc/%d/root/proc/self", pid))
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// begin returns where the answer to a question comes from, and has it worked on if that has not begun.
func (l *later) begin(a ask, link string) (c chan *os.File, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c = l.asks[a]; c != nil {
		return c, true
	}
	if len(l.asks) >= mostLater {
		return nil, false
	}
	c = make(chan *os.File, 1)
	l.asks[a] = c
	go func() {
		if !sees(a.pid) {
			l.apart.Do(func() { l.logf("libraries that processes in a PID namespace load later are not traced") })
			c <- nil
			return
		}
		f, err := safefile.Open(link)
		if err != nil {
			c <- nil
			return
		}
		defer f.Close()
		c <- l.give(a.path, f)
	}()
	return c, true
}

// descriptor is what a process is told of a file of this one: the descriptor, and the low half of the inode; 0 for nil.
func descriptor(f *os.File) uint64 {
	var st unix.Stat_t
	if f == nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return uint64(f.Fd()) | st.Ino<<32
}
