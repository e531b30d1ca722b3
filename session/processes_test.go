//go:build linux

package session

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/trace"
)

// until waits for something that happens soon.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// How a process ended is known before its parent has waited for it, and afterwards if the kernel tells.
func TestProcessExits(t *testing.T) {
	for _, tt := range []struct {
		script         string
		status, signal int
	}{{"read x; exit 7", 7, 0}, {"read x; exit 0", 0, 0}, {"read x; kill -9 $$", -1, 9}} {
		for _, waited := range []bool{false, true} {
			cmd := exec.Command("sh", "-c", tt.script)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			ps := newProcesses()
			ps.saw(pid, pid)
			ps.saw(pid, pid)
			if !waited {
				go ps.watch()
			}
			in.Close()
			if waited {
				_ = cmd.Wait()
				go ps.watch()
			}
			until(t, tt.script, func() bool { return !ps.knows(pid) })
			got := ps.end(map[int]bool{pid: true}, 0, 0, false)
			ps.close()
			if !waited {
				_ = cmd.Wait()
			}
			if len(got) != 1 || got[0].PID != pid || got[0].Parent != unix.Getpid() || got[0].Ended < got[0].Seen {
				t.Fatalf("%s: %+v", tt.script, got)
			}
			p, want := got[0], trace.ExitProc
			if waited {
				want = trace.ExitPidfd
			}
			if waited && !kernelTells(t) {
				if p.Source != "" {
					t.Errorf("%s: status from %q", tt.script, p.Source)
				}
				continue
			}
			if p.Source != want || p.ExitStatus != tt.status || p.Signal != tt.signal {
				t.Errorf("%s, waited for: %v: %+v, want %d, signal %d from %s",
					tt.script, waited, p, tt.status, tt.signal, want)
			}
		}
	}
}

// A process that has ended is still seen, by the chunks that it has left: it is no second one without a status.
func TestProcessSeenAfterItsEnd(t *testing.T) {
	cmd := exec.Command("sh", "-c", "exit 7")
	ps := newProcesses()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ps.saw(pid, pid)
	go ps.watch()
	until(t, "the end of sh", func() bool { return !ps.knows(pid) })
	ps.saw(pid, pid) // a zombie
	_ = cmd.Wait()
	got := ps.end(map[int]bool{pid: true}, pid, syscall.WaitStatus(7<<8), true)
	ps.close()
	if len(got) != 1 || got[0].ExitStatus != 7 || got[0].Source != trace.ExitWaited {
		t.Errorf("%+v", got)
	}
}

// kernelTells reports whether the kernel is 6.15 or later.
func kernelTells(t *testing.T) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	return major > 6 || major == 6 && minor >= 15
}

// Titles are noted when they change, a bounded number of them; processes that recorded nothing are left out, and the
// first one with the program's id ended as the program did.
func TestProcessTitles(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	pid := cmd.Process.Pid
	ps := newProcesses()
	ps.saw(pid, pid)
	ps.saw(1, 1)
	go ps.watch()
	go ps.watchTitles()
	p := ps.list[0]
	until(t, "title of sleep", func() bool {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		return p.title == "sleep 1000"
	})
	ps.mu.Lock()
	for i := range 2 * mostTitles {
		p.called(fmt.Sprint("title ", i))
		p.called(fmt.Sprint("title ", i))
	}
	ps.mu.Unlock()
	got := ps.end(map[int]bool{pid: true}, pid, syscall.WaitStatus(3<<8), true)
	ps.close()
	if len(got) != 1 {
		t.Fatalf("%+v", got)
	}
	titles := got[0].Titles
	if n := len(titles); n > mostTitles || titles[0].Text != "sleep 1000" || titles[1].Text != "title 0" ||
		!strings.HasPrefix(titles[n-2].Text, "title ") {
		t.Errorf("%d titles: %+v", n, titles)
	}
	if got[0].ExitStatus != 3 || got[0].Source != trace.ExitWaited {
		t.Errorf("%+v", got[0])
	}
}
