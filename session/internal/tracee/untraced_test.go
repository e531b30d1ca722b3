//go:build linux

package tracee

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// A process is untraced unless there is the page by which its tracer is found.
func TestUntraced(t *testing.T) {
	pid := os.Getpid()
	if !Untraced(pid) {
		t.Error("without the page")
	}
	const mapFixedNoreplace = 0x100000
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, homePage, format.MeetingSize, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|mapFixedNoreplace, ^uintptr(0), 0)
	if errno != 0 || at != homePage {
		t.Skipf("no page at %#x: %v", homePage, errno)
	}
	defer unix.Syscall(unix.SYS_MUNMAP, homePage, format.MeetingSize, 0)
	if !Untraced(pid) {
		t.Error("with a page that is another's")
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if _, err := mem.WriteAt([]byte(format.MeetingMagic), homePage+format.MeetingOMagic); err != nil {
		t.Fatal(err)
	}
	if Untraced(pid) {
		t.Error("with the page")
	}
}
