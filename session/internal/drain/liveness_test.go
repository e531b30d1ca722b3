//go:build linux

package drain

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// What the ids say that processes leave behind can later be ids of the recorder's threads, and of the recorder's own in
// another PID namespace. The recorder maps the pool, too, but is no traced process that is left.
func TestRecorderIsNotLeft(t *testing.T) {
	fd, err := unix.MemfdCreate("pool", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	shared := procfs.SharedFile{Inode: st.Ino, Path: "/memfd:pool (deleted)"}
	if mapped, known := shared.MappedBy(os.Getpid()); !mapped || !known {
		t.Fatal("the memory is not found")
	}

	thread, end := make(chan int), make(chan bool)
	go func() {
		runtime.LockOSThread() // the first thread's id is the process's
		defer runtime.UnlockOSThread()
		if unix.Gettid() == os.Getpid() {
			go func() {
				runtime.LockOSThread()
				thread <- unix.Gettid()
				<-end
			}()
		} else {
			thread <- unix.Gettid()
		}
		<-end
	}()
	defer close(end)
	for what, id := range map[string]int{"a thread": <-thread, "the process": os.Getpid()} {
		l := NewLiveness(shared)
		l.Start(1) // it was attached to, and began before
		l.leader.Pid = 1
		l.saw(id)
		if l.Left() {
			t.Errorf("the id of %s of the recorder is taken for a traced process's", what)
		}
	}
}
