package stub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// TestTraceDirectory: what is at the place of the trace directory is used, put
// aside or left alone, and the program runs in every case.
func TestTraceDirectory(t *testing.T) {
	f := buildFixture(t, "survive.c", buildOptions{})
	const trace, kept, refused = "trace", "kept", "refused"
	for _, c := range []struct {
		name string
		make func(dir string) error // what is there before
		want string
	}{
		{"nothing", func(string) error { return nil }, trace},
		{"empty", func(d string) error { return os.Mkdir(d, 0o777) }, trace},
		{"older", func(d string) error { return oldTrace(d) }, kept},
		{"two older", func(d string) error {
			if err := oldTrace(d + ".old"); err != nil {
				return err
			}
			return oldTrace(d)
		}, kept},
		{"never begun", func(d string) error { return notBegun(d, 0) }, trace},
		{"without a header", func(d string) error {
			if err := notBegun(d+".old", 1<<20); err != nil {
				return err
			}
			return notBegun(d, 1<<20)
		}, trace},
		{"somebody's empty file", func(d string) error {
			if err := notBegun(d, 0); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(d, "letter"), []byte("mine"), 0o600)
		}, refused},
		{"file", func(d string) error { return os.WriteFile(d, []byte("mine"), 0o600) }, refused},
		{"fifo", func(d string) error { return syscall.Mkfifo(d, 0o600) }, refused},
		{"foreign directory", func(d string) error {
			if err := os.Mkdir(d, 0o777); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(d, "letter"), []byte("mine"), 0o600)
		}, refused},
		{"foreign events", func(d string) error {
			if err := os.Mkdir(d, 0o777); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(d, "events"), []byte("the events of my life"), 0o600)
		}, refused},
		{"foreign old", func(d string) error {
			if err := os.MkdirAll(d+".old", 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(d+".old", "a.sym"), []byte("mine"), 0o600); err != nil {
				return err
			}
			return oldTrace(d)
		}, refused},
		{"link to a trace", func(d string) error {
			if err := oldTrace(d + ".target"); err != nil {
				return err
			}
			return os.Symlink(d+".target", d)
		}, refused},
		{"link to an empty directory", func(d string) error {
			if err := os.Mkdir(d+".target", 0o777); err != nil {
				return err
			}
			return os.Symlink(d+".target", d)
		}, refused},
		{"dangling link", func(d string) error { return os.Symlink(d+".target", d) }, refused},
		{"no parent", func(d string) error { return os.Remove(filepath.Dir(d)) }, refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "sub", "data")
			if err := os.Mkdir(filepath.Dir(dir), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := c.make(dir); err != nil {
				t.Fatal(err)
			}
			before := listing(t, filepath.Dir(dir))
			cmd := f.command(t, "calls")
			cmd.Env = append(os.Environ(), "FENTRY_DATA="+dir)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || string(out) != "leaf 1\nnest 4\n" {
				t.Fatalf("%v, output %q", err, out)
			}
			if c.want == refused {
				if s := errs.String(); !strings.HasPrefix(s, "fentry: ") || strings.Count(s, "\n") != 1 {
					t.Errorf("standard error %q", s)
				}
				if after := listing(t, filepath.Dir(dir)); after != before {
					t.Errorf("before:\n%safter:\n%s", before, after)
				}
				return
			}
			if errs.Len() > 0 {
				t.Errorf("standard error %q", errs.String())
			}
			if ev := f.read(t, filepath.Join(dir, "events")); ev.calls["nest"] != 4 {
				t.Errorf("calls %v", ev.calls)
			}
			if c.want == kept {
				if b, err := os.ReadFile(filepath.Join(dir+".old", "info.json")); err != nil || string(b) != dir {
					t.Errorf("old trace: %q, %v", b, err)
				}
			}
		})
	}
}

// notBegun makes what a program leaves that is killed before it has written the header of its trace.
func notBegun(dir string, size int64) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "events"))
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// TestLockedDirectory: without the lock of its directory an older trace is left where it is. Whoever has the lock may be
// putting it aside, and what the one has kept the other would remove.
func TestLockedDirectory(t *testing.T) {
	t.Parallel()
	f := buildFixture(t, "survive.c", buildOptions{})
	dir := filepath.Join(t.TempDir(), "data")
	for _, d := range []string{dir, dir + ".old"} {
		if err := oldTrace(d); err != nil {
			t.Fatal(err)
		}
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := unix.Flock(int(parent.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := listing(t, filepath.Dir(dir))
	cmd := f.command(t, "calls")
	cmd.Env = append(os.Environ(), "FENTRY_DATA="+dir)
	want := "fentry: no trace: an older one is at " + dir + ", and another process keeps its directory locked\n"
	if s := survives(t, cmd); s != want {
		t.Errorf("standard error %q", s)
	}
	if after := listing(t, filepath.Dir(dir)); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// TestManyStarts: programs that start at the same time, some of which are killed at once, leave a trace that can be
// read, and an older one beside it.
func TestManyStarts(t *testing.T) {
	t.Parallel()
	f := buildFixture(t, "survive.c", buildOptions{})
	dir := filepath.Join(t.TempDir(), "data")
	start := func() *exec.Cmd {
		cmd := f.command(t, "calls")
		cmd.Env = append(os.Environ(), "FENTRY_DATA="+dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	for round := range 20 {
		var group []*exec.Cmd
		for range 8 {
			group = append(group, start())
		}
		for i, cmd := range group {
			if i%2 == 1 {
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
				cmd.Process.Kill()
			}
		}
		for _, cmd := range group {
			cmd.Wait()
		}
		for range 2 { // so that there is an older one, whatever became of those before
			if err := start().Wait(); err != nil {
				t.Fatal(err)
			}
		}
		for _, d := range []string{dir, dir + ".old"} {
			if ev := f.read(t, filepath.Join(d, "events")); ev.calls["nest"] < 4 {
				t.Fatalf("round %d: %s: calls %v", round, d, ev.calls)
			}
		}
	}
}

// TestFullDisk: a program goes on without a trace, and what is lost is counted.
func TestFullDisk(t *testing.T) {
	forEach(t, func(t *testing.T, m *machine) {
		if os.Getuid() != 0 {
			t.Skip("needs root to mount a small file system")
		}
		dir := t.TempDir()
		if err := syscall.Mount("fentry-test", dir, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("needs to mount a small file system: %v", err)
		}
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		const calls = 20000 * 11 // of nest, and one of leaf for each eleventh
		f := buildFixture(t, "survive.c", buildOptions{on: m})
		cmd := f.command(t, "many", "20000")
		cmd.Env = append(os.Environ(), "FENTRY_DATA="+filepath.Join(dir, "data"))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil || string(out) != "leaf 20000\nnest 220000\n" {
			t.Errorf("%v, output %q", err, out)
		}
		if want := "fentry: the trace ends here, what follows is lost: no space left on device\n"; errs.String() != want {
			t.Errorf("standard error %q, want %q", errs.String(), want)
		}
		ev := f.read(t, filepath.Join(dir, "data", "events"))
		if got, all := ev.recorded(), 2*(20000+calls); got < 10000 || got+int(ev.lost) != all {
			t.Errorf("%d events recorded, %d lost, %d happened", got, ev.lost, all)
		}
	})
}

// TestUncounted: where there is no room for the first chunk, or for a thread's table of
// counts, the trace says that nobody has counted.
func TestUncounted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	for _, tt := range []struct {
		name, size string
		config     Config
	}{
		{"chunk", "size=80k", Config{}},
		{"table", "size=80k", Config{Mode: ModeProfile}},
		{"counts", "size=80k", Config{Mode: ModeCount}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("fentry-test", dir, "tmpfs", 0, tt.size); err != nil {
				t.Skipf("needs to mount a small file system: %v", err)
			}
			t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
			f := buildFixture(t, "survive.c", buildOptions{on: onAMD64, config: tt.config})
			cmd := f.command(t, "many", "2000")
			cmd.Env = append(os.Environ(), "FENTRY_DATA="+filepath.Join(dir, "data"))
			if out, err := cmd.Output(); err != nil || string(out) != "leaf 2000\nnest 22000\n" {
				t.Errorf("%v, output %q", err, out)
			}
			b, err := os.ReadFile(filepath.Join(dir, "data", "events"))
			if err != nil {
				t.Fatal(err)
			}
			le := binary.LittleEndian
			n, from := le.Uint32(b[format.HUncounted:]), le.Uint64(b[format.HUncountedFrom:])
			if n == 0 || from < le.Uint64(b[format.HCounter:]) {
				t.Errorf("%d uncounted, from %d", n, from)
			}
		})
	}
}

// oldTrace makes something that looks like a trace whose process is gone.
func oldTrace(dir string) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	b := make([]byte, 4096)
	copy(b, "FENTRYT1")
	b[8], b[13], b[18], b[60] = 2, 0x10, 1, 1 // version, header of 4096, chunks of 65536, process 1
	for _, name := range []string{"info.json", "chunks", "0123456789abcdef.sym"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(dir), 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "events"), b, 0o666)
}

// listing is all that is below dir, with contents.
func listing(t *testing.T, dir string) string {
	var b strings.Builder
	filepath.Walk(dir, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return nil
		}
		b.WriteString(path + " " + st.Mode().String())
		if st.Mode().IsRegular() {
			c, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString(" " + string(c[:min(len(c), 40)]))
		}
		b.WriteByte('\n')
		return nil
	})
	return b.String()
}
