package stub

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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
