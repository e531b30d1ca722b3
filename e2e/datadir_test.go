package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// A trace that cannot be written never harms the program: it behaves as untraced, and somebody says clearly what is wrong.

func dataFixture(t *testing.T, name string, args ...string) (*program, *result) {
	t.Helper()
	needFentry(t)
	p := build(t, loadFixture(t, name), allConfigs()[0])
	return p, p.untraced(t, args)
}

func patched(t *testing.T, p *program) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "patched")
	copyDir(t, p.dir, dir)
	out := filepath.Join(dir, p.fixture.name)
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	patchFile(t, p.path(), out, nil)
	return out
}

func TestPatchedWithoutDirectory(t *testing.T) {
	t.Parallel()
	p, want := dataFixture(t, "second", "9")
	prog := patched(t, p)
	ro := t.TempDir()
	if err := os.Chmod(ro, 0o555); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("not a directory"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"missing parent": filepath.Join(t.TempDir(), "no", "such", "place"),
		"proc":           "/proc/fentry.data", // read-only even for root
		"a file":         file,
		"below a file":   filepath.Join(file, "data"),
		"too long":       "/tmp/" + strings.Repeat("x", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, command{dir: filepath.Dir(prog), argv: []string{"./second", "9"}, env: []string{"FENTRY_DATA=" + data, "FIXTURE_COUNTS=" + p.counts()}})
			sameBehaviour(t, want, r)
			if !strings.Contains(r.stderr, "fentry:") {
				t.Errorf("nobody says that there is no trace; stderr %q", r.stderr)
			}
		})
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "not a directory" {
		t.Errorf("the file in the way was changed: %q, %v", b, err)
	}
	t.Run("off", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		r := run(t, command{dir: filepath.Dir(prog), argv: []string{"./second", "9"}, env: []string{"FENTRY_OFF=1", "FENTRY_DATA=" + dir, "FIXTURE_COUNTS=" + p.counts()}})
		sameBehaviour(t, want, r)
		if strings.Contains(r.stderr, "fentry:") {
			t.Errorf("FENTRY_OFF is no error: %q", r.stderr)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("FENTRY_OFF=1 still leaves a trace directory")
		}
	})
	t.Run("closed stderr", func(t *testing.T) {
		r := run(t, command{dir: filepath.Dir(prog), argv: []string{"sh", "-c", "exec ./second 9 2>&-"}, env: []string{"FENTRY_DATA=/proc/nowhere", "FIXTURE_COUNTS=" + p.counts()}})
		sameBehaviour(t, want, r)
	})
	t.Run("working directory is default", func(t *testing.T) {
		dir := t.TempDir()
		for range 2 {
			r := run(t, command{dir: dir, argv: []string{prog, "9"}, env: []string{"FIXTURE_COUNTS=" + p.counts()}})
			sameBehaviour(t, want, r)
		}
		if tr := decodeTrace(t, filepath.Join(dir, "fentry.data"), prog); tr.events == 0 {
			t.Error("empty trace in ./fentry.data")
		}
	})
}

// tmpfs mounts a small file system, or skips.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("fentry-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs to mount a small file system: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	p, want := dataFixture(t, "second", "500") // half a million calls: 8 MB
	prog := patched(t, p)
	t.Run("patch", func(t *testing.T) {
		full := tmpfs(t, "1m")
		r := run(t, command{dir: filepath.Dir(prog), argv: []string{"./second", "500"}, env: []string{"FENTRY_DATA=" + filepath.Join(full, "data"), "FIXTURE_COUNTS=" + p.counts()}})
		sameBehaviour(t, want, r)
		checkPartial(t, filepath.Join(full, "data"), r, prog)
	})
	t.Run("record", func(t *testing.T) {
		full := tmpfs(t, "1m")
		data := filepath.Join(full, "data")
		r := run(t, command{dir: p.dir, argv: []string{fentry, "record", "-o", data, "./second", "500"}, env: []string{"FIXTURE_COUNTS=" + p.counts()}})
		sameBehaviour(t, want, r)
		checkPartial(t, data, r)
	})
	t.Run("full from the start", func(t *testing.T) {
		full := tmpfs(t, "64k")
		if err := os.WriteFile(filepath.Join(full, "filler"), make([]byte, 60<<10), 0o644); err != nil {
			t.Fatal(err)
		}
		r := run(t, command{dir: filepath.Dir(prog), argv: []string{"./second", "500"}, env: []string{"FENTRY_DATA=" + filepath.Join(full, "data"), "FIXTURE_COUNTS=" + p.counts()}})
		sameBehaviour(t, want, r)
		if !strings.Contains(r.stderr, "fentry:") {
			t.Errorf("nobody says that there is no trace; stderr %q", r.stderr)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		ro := tmpfs(t, "1m")
		if err := syscall.Mount("", ro, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Skipf("needs a read-only mount: %v", err)
		}
		r := run(t, command{dir: filepath.Dir(prog), argv: []string{"./second", "500"}, env: []string{"FENTRY_DATA=" + filepath.Join(ro, "data"), "FIXTURE_COUNTS=" + p.counts()}})
		sameBehaviour(t, want, r)
		if !strings.Contains(r.stderr, "fentry:") {
			t.Errorf("nobody says that there is no trace; stderr %q", r.stderr)
		}
		// record cannot even begin: it says so and does not run the program half-traced
		r = run(t, command{dir: p.dir, argv: []string{fentry, "record", "-o", filepath.Join(ro, "data"), "./second", "500"}, env: []string{"FIXTURE_COUNTS=" + p.counts()}})
		if r.status != "exit 125" || !strings.Contains(r.stderr, ro) {
			t.Errorf("record into a read-only directory: %s, %q; want exit 125 and the path", r.status, clip(r.stderr))
		}
	})
}

// checkPartial: what fits on a full disk is readable, and what does not is reported as lost.
func checkPartial(t *testing.T, data string, r *result, patched ...string) {
	t.Helper()
	tr, err := decode(data, patched...)
	if err != nil {
		t.Errorf("what was recorded is not readable: %v", err)
		return
	}
	if tr.events == 0 {
		t.Error("nothing was recorded before the disk was full")
	}
	if !strings.Contains(r.stderr, "no space left") {
		t.Errorf("nobody says that the disk is full; stderr %q", clip(r.stderr))
	}
	report := run(t, command{argv: []string{fentry, "report", "-i", data}})
	if tr.lost == 0 && report.stderr == "" {
		t.Errorf("%d of a million events are in the trace, none is counted as lost, and report says nothing:\n%s", tr.events, report.stdout)
	}
}

// A recorder knows processes by other numbers than a PID namespace below it does, and programs in there do not see it in
// /proc: they find it in the directory that their trace would be in. Where that is another one, they write a trace of
// their own.
func TestPIDNamespace(t *testing.T) {
	t.Parallel()
	testtool.Need(t, "unshare")
	if r := run(t, command{argv: []string{"unshare", "-rfp", "--mount-proc", "true"}}); r.status != "exit 0" {
		t.Skipf("no PID namespaces here: unshare: %s %s", r.status, r.stderr)
	}
	p, want := dataFixture(t, "second", "9")
	prog := patched(t, p)
	for _, ns := range [][]string{{"unshare", "-rfp", "--mount-proc"}, {"unshare", "-rfp"}} {
		t.Run(strings.Join(ns, " "), func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			record := []string{fentry, "record", "--plain=no", "-o", data}
			argv := append(append(record, ns...), "sh", "-c", "./second 9; exit $?")
			r := run(t, command{dir: filepath.Dir(prog), argv: argv, env: []string{"FENTRY_DATA=" + data, "FIXTURE_COUNTS=" + p.counts()}})
			sameBehaviour(t, want, r)
			if strings.Contains(r.stderr, "no trace") {
				t.Errorf("stderr %q", r.stderr)
			}
			equalCounts(t, p, copyCounts(t, p.counts()), decodeTrace(t, data), false)
			checkInside(t, data, p.path())
			if _, err := os.Lstat(filepath.Join(data, "socket")); err == nil {
				t.Error("the recorder's socket is left")
			}

			// A trace elsewhere is the program's own.
			own := filepath.Join(t.TempDir(), "own")
			argv = append(append(record, ns...), "./second", "9")
			r = run(t, command{dir: filepath.Dir(prog), argv: argv, env: []string{"FENTRY_DATA=" + own, "FIXTURE_COUNTS=" + p.counts()}})
			sameBehaviour(t, want, r)
			equalCounts(t, p, copyCounts(t, p.counts()), decodeTrace(t, own, prog), false)

			inside := filepath.Join(t.TempDir(), "data")
			argv = append(ns, fentry, "record", "--plain=no", "-o", inside, "sh", "-c", "./second 9; exit $?")
			r = run(t, command{dir: filepath.Dir(prog), argv: argv, env: []string{"FIXTURE_COUNTS=" + p.counts()}})
			sameBehaviour(t, want, r)
			copyCounts(t, p.counts())
			if len(ns) < 3 { // /proc is not the namespace's
				return
			}
			if tr := decodeTrace(t, inside, prog); tr.events == 0 {
				t.Error("no events of a program whose recorder is in the namespace")
			}
		})
	}
}

// checkInside checks what a recorder knows of the program that ran in a PID namespace.
func checkInside(t *testing.T, data, prog string) {
	t.Helper()
	var info struct {
		Images    []struct{ Path string }
		Processes []struct {
			PID    int
			Titles []struct{ Text string }
		}
	}
	out := run(t, command{argv: []string{fentry, "info", "--json", "-i", data}}).stdout
	if err := json.Unmarshal([]byte(out), &info); err != nil {
		t.Fatalf("%v in %s", err, clip(out))
	}
	if len(info.Images) != 1 || info.Images[0].Path != prog {
		t.Errorf("images %+v, want %s", info.Images, prog)
	}
	if len(info.Processes) != 1 || info.Processes[0].PID > 20 {
		t.Errorf("processes %+v, want one with a small id", info.Processes)
	}
}
