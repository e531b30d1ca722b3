package buildstep_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// helper is this test program as one that works on files and ends: see TestMain.
func helper(t *testing.T, mode string, files ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "BUILDSTEP_FILES="+strings.Join(files, ":"), "BUILDSTEP_MODE="+mode, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1")
	return cmd
}

// fileCalls are the system calls that have to do with files. The others depend on the scheduler and on signals.
var fileCalls = map[uint64]bool{
	unix.SYS_OPENAT: true, unix.SYS_CLOSE: true, unix.SYS_FSTAT: true, unix.SYS_NEWFSTATAT: true, unix.SYS_PREAD64: true, unix.SYS_READ: true,
	unix.SYS_WRITE: true, unix.SYS_WRITEV: true, unix.SYS_FLOCK: true, unix.SYS_FCHMOD: true, unix.SYS_FCHOWN: true, unix.SYS_FSYNC: true,
	unix.SYS_LISTXATTR: true, unix.SYS_FLISTXATTR: true, unix.SYS_READLINKAT: true, unix.SYS_UTIMENSAT: true, unix.SYS_FCNTL: true,
	unix.SYS_LINKAT: true, unix.SYS_RENAMEAT: true, unix.SYS_RENAMEAT2: true, unix.SYS_UNLINKAT: true, unix.SYS_EXIT_GROUP: true,
}

// syscallInfo is struct ptrace_syscall_info at the entry of a system call.
type syscallInfo struct {
	op     uint8
	arch   uint32
	ip, sp uint64
	nr     uint64
	args   [6]uint64
}

// enteredFileCall reports whether a stopped thread is about to make, or is in, a system call of fileCalls. A thread of
// which a stop was reported may be gone by now: another one that still ran ended the process (exit_group) or was
// killed. Its end is reported next; until then ptrace says ESRCH.
func enteredFileCall(t *testing.T, tid int) bool {
	t.Helper()
	var info syscallInfo
	_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(tid), unsafe.Sizeof(info),
		uintptr(unsafe.Pointer(&info)), 0, 0)
	if e != 0 && e != unix.ESRCH {
		t.Fatalf("PTRACE_GET_SYSCALL_INFO: %v", e)
	}
	return e == 0 && fileCalls[info.nr]
}

// killAt runs the command and kills it when it enters its n-th system call of those that have to do with files. It
// reports whether the command was killed: false means that it ended by itself, with success, before. The caller has
// locked its thread.
func killAt(t *testing.T, cmd *exec.Cmd, n int) bool {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
		t.Fatalf("%v, status %#x", err, ws)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		t.Fatal(err)
	}
	inside := map[int]bool{} // threads between entry and exit of a system call
	killed := false
	tid, sig := pid, 0
	for {
		if err := unix.PtraceSyscall(tid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
		var err error
		if tid, err = unix.Wait4(-1, &ws, unix.WALL, nil); err != nil {
			t.Fatal(err)
		}
		sig = 0
		switch {
		case ws.Exited() && tid == pid:
			if ws.ExitStatus() != 0 && !killed {
				t.Fatalf("exit status %d", ws.ExitStatus())
			}
			return killed
		case ws.Signaled() && tid == pid:
			if !killed {
				t.Fatalf("signal %v", ws.Signal())
			}
			return true
		case ws.Stopped() && ws.StopSignal() == unix.SIGTRAP|0x80:
			if inside[tid] = !inside[tid]; inside[tid] && enteredFileCall(t, tid) {
				if n--; n == 0 {
					killed = true
					unix.Kill(pid, unix.SIGKILL)
				}
			}
		case ws.Stopped() && ws.StopSignal() != unix.SIGTRAP && ws.StopSignal() != unix.SIGSTOP:
			sig = int(ws.StopSignal())
		}
	}
}

// A process that is killed, at whichever of its system calls, leaves the old file or the new one. Between two of its
// system calls there is one file more, and the next run removes it.
func TestKilledAtEverySystemCall(t *testing.T) {
	orig := object(t)
	done := want(t, orig)
	lib := archiveOf(t, orig)
	for _, tt := range []struct {
		mode, name string
		from       []byte
	}{
		{"add", "x.o", orig}, {"strip", "x.o", done}, {"sync", "x.o", orig}, {"time", "x.o", orig}, {"add", "lib.a", lib},
	} {
		t.Run(tt.mode+" "+tt.name, func(t *testing.T) {
			runtime.LockOSThread() // ptrace belongs to a thread
			defer runtime.UnlockOSThread()
			p := filepath.Join(t.TempDir(), tt.name)
			put(t, p, tt.from)
			if out, err := helper(t, tt.mode, p).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			to := get(t, p)
			var calls, old, litter int
			for n := 1; ; n++ {
				dir := t.TempDir()
				p := put(t, filepath.Join(dir, tt.name), tt.from)
				if !killAt(t, helper(t, tt.mode, p), n) {
					calls = n - 1
					break
				}
				switch b := get(t, p); {
				case bytes.Equal(b, tt.from):
					old++
				case !bytes.Equal(b, to):
					t.Fatalf("killed at system call %d: neither the old nor the new file", n)
				}
				switch all := names(t, dir); {
				case len(all) == 1:
					continue
				case len(all) == 2 && strings.HasPrefix(all[0], ".fentry-"):
					litter++
				default:
					t.Fatalf("killed at system call %d: %q", n, all)
				}
				if out, err := helper(t, tt.mode, p).CombinedOutput(); err != nil {
					t.Fatalf("the run after the one killed at %d: %v: %s", n, err, out)
				}
				if all := names(t, dir); len(all) != 1 || !bytes.Equal(get(t, p), to) {
					t.Fatalf("after the run that follows: %q", all)
				}
			}
			t.Logf("%d system calls; killed at %d of them the file was still the old one, at %d there was one file more", calls, old, litter)
			if old == 0 || old == calls || litter != 1 {
				t.Errorf("the old file at %d of %d, another file at %d", old, calls, litter)
			}
		})
	}
}

// archiveOf makes an archive with an index of two members.
func archiveOf(t *testing.T, b []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "a.o"), b)
	put(t, filepath.Join(dir, "b.o"), b)
	cmd := exec.Command("ar", "rcs", "lib.a", "a.o", "b.o")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return get(t, filepath.Join(dir, "lib.a"))
}

// A run that a signal ends gives back the slots of make's that it has; one that ignores the signal goes on.
func TestSlotsAreGivenBack(t *testing.T) {
	dir := t.TempDir()
	p := put(t, filepath.Join(dir, "x.o"), object(t))
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(fifo, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	const all = "abc"
	if _, err := unix.Write(fd, []byte(all)); err != nil {
		t.Fatal(err)
	}
	free := func() int {
		n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		cmd := helper(t, "slots", p)
		cmd.Env = append(cmd.Env, "MAKEFLAGS=--jobserver-auth=fifo:"+fifo)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for free() > 0 {
			select {
			case err := <-ended:
				t.Fatalf("it ends before it has all slots: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
		cmd.Process.Signal(sig)
		err := <-ended
		if signal.Ignored(sig) { // so the helper does, too: nohup go test
			if err != nil {
				t.Fatalf("%v, ignored: %v", sig, err)
			}
		} else if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != sig {
			t.Fatalf("%v: %v", sig, err)
		}
		if n := free(); n != len(all) {
			t.Fatalf("%v: %d of %d slots are left", sig, n, len(all))
		}
	}
	b := make([]byte, 8)
	n, err := unix.Read(fd, b)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(b[:n]); string(b[:n]) != all {
		t.Errorf("slots %q became %q", all, b[:n])
	}
}

// ownMounts returns the command that runs another one in a mount namespace of its own, where it can mount a tmpfs.
func ownMounts(t *testing.T) []string {
	t.Helper()
	unshare := []string{"unshare", "-m"}
	if os.Getuid() != 0 {
		unshare = []string{"unshare", "-r", "-m"}
	}
	if out, err := exec.Command(unshare[0], append(unshare[1:], "mount", "-t", "tmpfs", "none", t.TempDir())...).CombinedOutput(); err != nil {
		t.Skipf("a tmpfs cannot be mounted: %v: %s", err, out)
	}
	return unshare
}

// A file system with less space than the new file needs, in a mount namespace of its own.
func TestFullFileSystem(t *testing.T) {
	orig := object(t)
	unshare := ownMounts(t)
	from := put(t, filepath.Join(t.TempDir(), "x.o"), append(orig, make([]byte, 20000)...)) // more than fits twice
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"add", "sync", "links"} {
		dir := t.TempDir()
		script := fmt.Sprintf(`set -e
mount -t tmpfs -o size=32k none %[1]s
cd %[1]s
cp %[2]s x.o
ln x.o y.o
status=0
%[3]s 2>%[4]s/err || status=$?
echo "status $status"
cmp x.o %[2]s
ls -A`, dir, from, exe, filepath.Dir(from))
		cmd := exec.Command(unshare[0], append(unshare[1:], "sh", "-c", script)...)
		cmd.Env = append(os.Environ(), "BUILDSTEP_FILES=x.o", "BUILDSTEP_MODE="+mode)
		out, err := cmd.CombinedOutput()
		if msg := string(get(t, filepath.Join(filepath.Dir(from), "err"))); err != nil || string(out) != "status 1\nx.o\ny.o\n" || !strings.HasPrefix(msg, "x.o: ") || !strings.HasSuffix(msg, "no space left on device\n") {
			t.Errorf("%s: %v, %q, message %q", mode, err, out, msg)
		}
	}
}

// A file that is written in place and grows beyond what the file system has stays as it was, whichever size is the
// limit: for each, it is the old file or the new one.
func TestFullInPlace(t *testing.T) {
	orig := object(t)
	unshare := ownMounts(t)
	tmp := t.TempDir()
	from := put(t, filepath.Join(tmp, "x.o"), append(orig, make([]byte, 8192-len(orig)%4096)...))
	to := put(t, filepath.Join(tmp, "to.o"), get(t, from))
	if out, err := helper(t, "links", to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`set -e
cd %[1]s
mkdir m
pages=$((($(stat -c %%s to.o) + 4095) / 4096))
for n in $(seq $((pages - 1)) $((2 * pages + 1))); do
	mount -t tmpfs -o size=$((4 * n))k none m
	cp x.o m
	ln m/x.o m/y.o
	if BUILDSTEP_FILES=m/x.o BUILDSTEP_MODE=links %[2]s 2>>err; then cmp to.o m/x.o; echo new; else cmp x.o m/x.o; echo old; fi
	cmp m/x.o m/y.o
	umount m
done`, tmp, exe)
	out, err := exec.Command(unshare[0], append(unshare[1:], "sh", "-c", script)...).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "old\nold\n") || !strings.HasSuffix(string(out), "old\nnew\n") &&
		!strings.HasSuffix(string(out), "old\nnew\nnew\n") {
		t.Errorf("%v: %s", err, out)
	}
}

// Processes that add and remove the table of one file at once: none fails, and the file is always one of the two.
func TestManyProcessesOnOneFile(t *testing.T) {
	orig := object(t)
	done := want(t, orig)
	dir := t.TempDir()
	p := put(t, filepath.Join(dir, "x.o"), orig)
	many := strings.TrimSuffix(strings.Repeat(p+":", 50), ":")
	var cmds []*exec.Cmd
	errs := make([]bytes.Buffer, 6)
	for i := range errs {
		cmd := helper(t, []string{"add", "strip", "sync"}[i%3], many)
		cmd.Stderr = &errs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	stop := make(chan bool)
	looked := make(chan error, 1)
	go func() {
		for {
			b, err := os.ReadFile(p)
			if err != nil || !bytes.Equal(b, orig) && !bytes.Equal(b, done) {
				looked <- fmt.Errorf("%d bytes, %v", len(b), err)
				return
			}
			select {
			case <-stop:
				looked <- nil
				return
			default:
			}
		}
	}()
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, &errs[i])
		}
	}
	close(stop)
	if err := <-looked; err != nil {
		t.Errorf("seen meanwhile: %v", err)
	}
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("litter: %q", n)
	}
}
