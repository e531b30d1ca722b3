//go:build linux && amd64

package session

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/memfile"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// What a running program loads is given to it in the same way: once, by whatever path, also in a child.
func TestLaterLibraries(t *testing.T) {
	for _, cc := range []string{"gcc", "musl-gcc"} {
		t.Run(cc, func(t *testing.T) {
			testtool.Need(t, cc)
			l := buildLoads(t, cc)
			program, link := filepath.Join(t.TempDir(), "later"), filepath.Join(t.TempDir(), "library.so")
			argv := []string{cc, "-O2", "-fpatchable-function-entry=5", "-o", program, "testdata/later.c", "-ldl"}
			if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", argv, err, out)
			}
			if err := os.Symlink(l.library, link); err != nil {
				t.Fatal(err)
			}
			r := recorderCmd{Memory: fixture.Memory(t, program, ""), Library: map[string]string{filepath.Base(l.library): l.other}}
			x := r.run(t, program, l.library, link)
			want := "answer 2, one\nmaps " + l.other + "\ncopies 1\nsum 200\nchild 2, none 0\n"
			if x.code != 7 || x.stdout != want || strings.Contains(x.stderr, "recorder:") {
				t.Errorf("status %d, %q, want %q: %s", x.code, x.stdout, want, x.stderr)
			}
		})
	}
}

// A recorder that does not answer holds the program up for a moment only, and a message says what is not traced.
func TestLaterSilence(t *testing.T) {
	testtool.Need(t, "gcc")
	l := buildLoads(t, "gcc")
	program := filepath.Join(t.TempDir(), "later")
	argv := []string{"gcc", "-O2", "-fpatchable-function-entry=5", "-o", program, "testdata/later.c", "-ldl"}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	r := recorderCmd{Memory: fixture.Memory(t, program, ""), Library: map[string]string{filepath.Base(l.library): l.other}}
	cmd := r.command(t, program, l.library, l.library, "wait")
	var errb strings.Builder
	cmd.Stderr = &errb
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	outp, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	defer limit.Stop()
	out := bufio.NewScanner(outp)
	if !out.Scan() || out.Text() != "ready" {
		t.Fatalf("%q, %s", out.Text(), errb.String())
	}
	unix.Kill(cmd.Process.Pid, unix.SIGSTOP)
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WSTOPPED, nil); err != nil { // all of its threads
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for out.Scan() {
		if lines = append(lines, out.Text()); strings.HasPrefix(out.Text(), "child") {
			break
		}
	}
	unix.Kill(cmd.Process.Pid, unix.SIGCONT)
	err = cmd.Wait()
	got, want := strings.Join(lines, "\n"), "answer 1, one\nmaps "+l.library+"\ncopies 1\nsum 100\nchild 1, none 0"
	if cmd.ProcessState.ExitCode() != 7 || got != want {
		t.Errorf("%v: %q, want %q: %s", err, got, want, errb.String())
	}
	if n := strings.Count(errb.String(), "not traced: the recorder does not answer"); n < 1 {
		t.Errorf("%q", errb.String())
	}
}

// A program that is traced gets its first libraries in the same way as one that is not.
func TestTracedLoads(t *testing.T) {
	l := buildLoads(t, "gcc", "-fpatchable-function-entry=5")
	r := recorderCmd{Memory: fixture.Memory(t, l.program, ""), Library: map[string]string{filepath.Base(l.library): l.other}}
	x := r.run(t, l.program, "arg")
	if x.code != 7 || !strings.HasPrefix(x.stdout, "- answer 2 ") || !x.res.Injected || strings.Contains(x.stderr, "recorder:") {
		t.Errorf("status %d, %q, %+v: %s", x.code, x.stdout, x.res, x.stderr)
	}
}

// A question is worked on as long as it takes, and asked again meanwhile; who does not map the pool gets nothing, and
// nobody can make any number of goroutines wait.
func TestLaterAsks(t *testing.T) {
	memory, err := memfile.New("shared")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if err := memory.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(memory.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	var st unix.Stat_t
	if err := unix.Fstat(int(memory.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	shared := procfs.SharedFile{Inode: st.Ino, Path: "/memfd:shared (deleted)"}
	path := filepath.Join(t.TempDir(), "library.so")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	proceed := make(chan bool)
	give := func(name string, _ *os.File) *os.File {
		<-proceed
		if name != path {
			return nil
		}
		return memory
	}
	l := (&session{live: drain.NewLiveness(shared), o: Options{Library: give}}).newLater(shared)
	request := func(pid int, fd uint64) (uint32, uint64) {
		r := &drain.Request{Kind: format.AskLibrary, PID: pid, Argument: fd}
		return l.handle(r), r.Argument
	}
	if a, _ := request(os.Getpid(), uint64(f.Fd())); a != drain.Later {
		t.Errorf("answer %d while it is worked on", a)
	}
	close(proceed)
	for {
		a, with := request(os.Getpid(), uint64(f.Fd()))
		if a == drain.Later {
			continue
		}
		if want := uint64(memory.Fd()) | st.Ino<<32; a != drain.Done || with != want {
			t.Errorf("answer %d, %#x, want %#x", a, with, want)
		}
		break
	}
	for what, r := range map[string][2]uint64{
		"another process": {1, uint64(f.Fd())}, "no descriptor": {uint64(os.Getpid()), 1 << 20}, "nonsense": {uint64(os.Getpid()), 1 << 62},
	} {
		if a, _ := request(int(r[0]), r[1]); a != drain.Failed {
			t.Errorf("%s: answer %d", what, a)
		}
	}
	if len(l.asks) != 0 {
		t.Errorf("%d questions are left", len(l.asks))
	}
	for i := range mostLater {
		l.asks[ask{pid: i + 1}] = make(chan *os.File)
	}
	if a, _ := request(os.Getpid(), uint64(f.Fd())); a != drain.Failed {
		t.Errorf("too many: answer %d", a)
	}
}
