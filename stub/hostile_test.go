package stub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// nobody is another user, for tests that root runs.
const nobody = 65534

// survives runs a fixture that finds something hostile and returns what it says. The program must run as if there were
// nothing, and not wait.
func survives(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(testtool.Patience, func() { cmd.Process.Kill() })
	defer limit.Stop()
	if err := cmd.Wait(); err != nil || out.String() != "leaf 1\nnest 4\n" {
		t.Fatalf("%v, output %q, standard error %q", err, out.String(), errs.String())
	}
	return errs.String()
}

// TestForeignDirectory: what another user has put at the place of the trace is not used, put aside or removed, nothing
// is written through it, and the program runs; so does one whose user has something there that is no trace.
func TestForeignDirectory(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "survive.c", buildOptions{on: m})
		give := func(paths ...string) error {
			for _, p := range paths {
				if err := os.Lchown(p, nobody, nobody); err != nil {
					return err
				}
			}
			return nil
		}
		for _, c := range []struct {
			name string
			root bool
			make func(d string) error
		}{
			{"another user's empty directory", true, func(d string) error {
				return errors.Join(os.Mkdir(d, 0o777), give(d))
			}},
			{"another user's trace", true, func(d string) error {
				return errors.Join(oldTrace(d), give(d, d+"/events"))
			}},
			{"another user's live trace", true, func(d string) error {
				return errors.Join(liveTrace(d), os.Chmod(d+"/events", 0o666), give(d, d+"/events"))
			}},
			{"another user's events", true, func(d string) error {
				return errors.Join(liveTrace(d), give(d+"/events"))
			}},
			{"another user's older trace", true, func(d string) error {
				return errors.Join(oldTrace(d), oldTrace(d+".old"), give(d+".old"))
			}},
			{"events are a link", false, func(d string) error {
				return errors.Join(oldTrace(d+".real"), os.Mkdir(d, 0o755), os.Symlink(d+".real/events", d+"/events"))
			}},
			{"events are a pipe", false, func(d string) error {
				return errors.Join(os.Mkdir(d, 0o755), syscall.Mkfifo(d+"/events", 0o600))
			}},
			{"notes beside a trace", false, func(d string) error {
				return errors.Join(oldTrace(d), os.WriteFile(d+"/notes.sym", []byte("mine"), 0o600))
			}},
			{"notes beside an older trace", false, func(d string) error {
				return errors.Join(oldTrace(d), oldTrace(d+".old"), os.WriteFile(d+".old/notes.sym", []byte("mine"), 0o600))
			}},
			{"the older one is a link", false, func(d string) error {
				return errors.Join(oldTrace(d), oldTrace(d+".real"), os.Symlink(d+".real", d+".old"))
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.root && os.Geteuid() != 0 {
					t.Skip("needs root: files of another user")
				}
				dir := filepath.Join(t.TempDir(), "data")
				if err := c.make(dir); err != nil {
					t.Fatal(err)
				}
				before := listing(t, filepath.Dir(dir))
				cmd := f.command(t, "calls")
				cmd.Env = append(os.Environ(), "FENTRY_DATA="+dir)
				if s := survives(t, cmd); !strings.HasPrefix(s, "fentry: no trace: ") || strings.Count(s, "\n") != 1 {
					t.Errorf("standard error %q", s)
				}
				if after := listing(t, filepath.Dir(dir)); after != before {
					t.Errorf("before:\n%safter:\n%s", before, after)
				}
			})
		}
	})
}

// liveTrace makes something that looks like a trace that this process is writing.
func liveTrace(dir string) error {
	if err := oldTrace(dir); err != nil {
		return err
	}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	b, err := os.ReadFile(filepath.Join(dir, "events"))
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	le.PutUint32(b[format.HLeader:], uint32(os.Getpid()))
	var start uint64
	for _, c := range fields[19] { // field 22
		start = 10*start + uint64(c-'0')
	}
	le.PutUint64(b[format.HLeaderStart:], start)
	return os.WriteFile(filepath.Join(dir, "events"), b, 0o600)
}

// TestPrivateTrace: a trace is for its user only, whatever the umask, and whoever could write in an empty directory
// that is used cannot any more. Somebody who holds the lock of the parent directory delays the program, and no more.
func TestPrivateTrace(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "survive.c", buildOptions{on: m})
		old := unix.Umask(0)
		defer unix.Umask(old)
		for _, there := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "data")
			mode := os.ModeDir | 0o700
			if there {
				if err := os.Mkdir(dir, 0o777); err != nil {
					t.Fatal(err)
				}
				mode = os.ModeDir | 0o755
			}
			parent, err := os.Open(filepath.Dir(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer parent.Close()
			if err := unix.Flock(int(parent.Fd()), unix.LOCK_EX); err != nil {
				t.Fatal(err)
			}
			cmd := f.command(t, "calls")
			cmd.Env = append(os.Environ(), "FENTRY_DATA="+dir)
			if s := survives(t, cmd); s != "" {
				t.Errorf("standard error %q", s)
			}
			for name, want := range map[string]os.FileMode{"": mode, "events": 0o600} {
				if fi, err := os.Lstat(filepath.Join(dir, name)); err != nil || fi.Mode() != want {
					t.Errorf("%q: mode %v, %v; want %v", name, fi.Mode(), err, want)
				}
			}
			if ev := f.read(t, filepath.Join(dir, "events")); ev.calls["nest"] != 4 {
				t.Errorf("calls %v", ev.calls)
			}
		}
	})
}

// TestStrangersPool: a pool of another user, or one that can become shorter while it is mapped, is not joined. Nothing
// is written there, and the program runs untraced.
func TestStrangersPool(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		for _, c := range []struct {
			name  string
			root  bool
			seals int
			spoil func(p *pool) error
		}{
			{"another user's", true, unix.F_SEAL_SHRINK, func(p *pool) error { return unix.Fchown(p.fd, nobody, nobody) }},
			{"not sealed", false, 0, func(*pool) error { return nil }},
			{"shorter than it says", false, unix.F_SEAL_SHRINK, func(p *pool) error {
				binary.LittleEndian.PutUint32(p.mem[format.HChunks:], uint32(p.n+1))
				return nil
			}},
			{"no chunks in reach", false, unix.F_SEAL_SHRINK, func(p *pool) error {
				binary.LittleEndian.PutUint32(p.mem[format.HHeaderSize:], 1<<31)
				return nil
			}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if c.root && os.Geteuid() != 0 {
					t.Skip("needs root: a file of another user")
				}
				p := newSealedPool(t, 8, format.PolicyBlock, c.seals)
				if err := c.spoil(p); err != nil {
					t.Fatal(err)
				}
				before := bytes.Clone(p.mem)
				f := buildFixture(t, "survive.c", buildOptions{on: m, config: Config{Session: p.path()}})
				cmd := f.command(t, "calls")
				survives(t, cmd)
				if !bytes.Equal(p.mem, before) {
					t.Error("the program has written to the pool")
				}
				madeNothing(t, cmd)
			})
		}
	})
}

// TestFlippedHeader: a program that looks at a live trace works with the header that it has checked, whatever becomes
// of the file's own meanwhile.
func TestFlippedHeader(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		f := buildFixture(t, "survive.c", buildOptions{on: m})
		dir := filepath.Join(t.TempDir(), "data")
		if err := liveTrace(dir); err != nil {
			t.Fatal(err)
		}
		events, err := os.OpenFile(filepath.Join(dir, "events"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		mem, err := unix.Mmap(int(events.Fd()), 0, format.HeaderSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			p := &pool{mem: mem}
			for i := uint32(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				p.word(format.HChunkSize).Store([]uint32{65536, 65535, 1 << 31, 65536, 0}[i%5])
				p.word(format.HHeaderSize).Store([]uint32{4096, 1, 4096, 1 << 31}[i%4])
			}
		}()
		defer func() { close(stop); <-stopped }()
		for range 8 {
			cmd := f.command(t, "calls")
			cmd.Env = append(os.Environ(), "FENTRY_DATA="+dir)
			survives(t, cmd)
		}
	})
}
