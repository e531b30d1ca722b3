//go:build linux

package procfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	s, err := parseStat([]byte("7 (a) b ) 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"))
	if err != nil || s.State != 'S' || s.Start != 4711 || s.Dead() {
		t.Errorf("%+v, %v", s, err)
	}
	for flags, want := range map[string]bool{"4194560": false, "4210768": true, "64": false, "16448": true} {
		stat := "7 (iou-wrk-6) S 1 2 3 4 5 " + flags + " 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"
		if s, err := parseStat([]byte(stat)); err != nil || s.Worker != want {
			t.Errorf("flags %s: %+v, %v", flags, s, err)
		}
	}
	if s, err := parseStat([]byte("7 (x) R 1 2 3 4 5 4194564 7 8 9 10 11 12 13 14 15 16 17 18 4711 20")); err != nil || !s.Exiting || s.Worker {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "1 (x", "1 (x) S 1", "1 (x) SS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20", "1 (x) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x 20"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestMappedBy(t *testing.T) {
	f := SharedFile{4711, "/memfd:fentry-pool (deleted)"}
	for maps, want := range map[string]bool{
		"7f0000000000-7f0000010000 rw-s 00000000 00:01 4711                       /memfd:fentry-pool (deleted)\n": true,
		"7f0000000000-7f0000010000 rw-s 00000000 00:01 4712                       /memfd:fentry-pool (deleted)\n": false,
		"7f0000000000-7f0000010000 rw-s 00000000 00:01 4711                       /memfd:fentry-pool\n":           false,
		"7f0000000000-7f0000010000 rw-s 4711 00:01 0\n":                                                           false,
		"": false,
	} {
		if got := f.in([]byte(maps)); got != want {
			t.Errorf("%q: %t", maps, got)
		}
	}
}

// What a process maps is found, by whatever this kernel can be asked.
func TestMappedByThis(t *testing.T) {
	fd, err := unix.MemfdCreate("pool", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := errors.Join(unix.Ftruncate(fd, 1<<16), unix.Fstat(fd, &st)); err != nil {
		t.Fatal(err)
	}
	f := SharedFile{st.Ino, "/memfd:pool (deleted)"}
	check := func(when string, f SharedFile, want bool) {
		t.Helper()
		maps, err := os.Open("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		defer maps.Close()
		if got, err := f.query(maps); err == nil && got != want {
			t.Errorf("%s: the kernel says %t", when, got)
		}
		text, err := io.ReadAll(maps)
		if got := f.in(text); err != nil || got != want {
			t.Errorf("%s: the text says %t, %v", when, got, err)
		}
		if got, known := f.MappedBy(os.Getpid()); got != want || !known {
			t.Errorf("%s: %t, %t", when, got, known)
		}
	}
	check("before", f, false)
	mem, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	check("mapped", f, true)
	check("another file", SharedFile{f.Inode + 1, f.Path}, false)
	check("another name", SharedFile{f.Inode, "/memfd:poo (deleted)"}, false)
	if err := unix.Munmap(mem); err != nil {
		t.Fatal(err)
	}
	check("behind", f, false)
}

// A process that has ended but was not waited for is not alive, and its threads
// are dead.
func TestZombie(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	s, err := ReadStat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	if !ProcessAlive(pid, s.Start) || TaskDead(pid, pid) {
		t.Error("a sleeping process is taken for dead")
	}
	if ProcessAlive(pid, s.Start+1) {
		t.Error("a later process of the same id is taken for this one")
	}
	syscall.Kill(pid, syscall.SIGKILL)
	for deadline := time.Now().Add(time.Minute); ProcessAlive(pid, s.Start); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a killed process is taken for alive")
		}
	}
	if !TaskDead(pid, pid) {
		t.Error("the thread of a zombie is taken for alive")
	}
	cmd.Wait()
	if ProcessAlive(pid, s.Start) || !TaskDead(pid, pid) {
		t.Error("a process that is gone is taken for alive")
	}
}

func TestOwnState(t *testing.T) {
	if !ProcessAlive(os.Getpid(), mustStat(t).Start) {
		t.Error("not alive")
	}
	if inner, _ := InnerPID(os.Getpid()); inner != os.Getpid() {
		t.Errorf("innermost id %d of %d", inner, os.Getpid())
	}
	f := SharedFile{1, "/no such file"}
	for _, p := range f.Mappers(0) {
		t.Errorf("%d maps a file that does not exist", p.Pid)
	}
}

func mustStat(t *testing.T) procStat {
	t.Helper()
	s, err := ReadStat("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
