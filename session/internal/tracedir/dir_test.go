//go:build linux

package tracedir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/session/internal/pool"
	"github.com/fentry-dev/fentry/trace"
)

// tree makes files; a name that ends in a slash is a directory.
func tree(t *testing.T, root string, names ...string) {
	t.Helper()
	for _, n := range names {
		p := filepath.Join(root, n)
		if strings.HasSuffix(n, "/") {
			if err := os.MkdirAll(p, 0o777); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(n), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// list returns every file with its contents.
func list(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(root, p)
		out = append(out, rel+"="+string(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRotate(t *testing.T) {
	const sym = "0123456789abcdef.sym"
	for _, tt := range []struct {
		name        string
		before      []string
		after, undo []string // files after commit, after rollback
		err         string
	}{
		{name: "nothing", after: []string{"d/events="}},
		{name: "empty directory", before: []string{"d/"}, after: []string{"d/events="}},
		{
			name: "older trace", before: []string{"d/events", "d/info.json", "d/" + sym},
			after: []string{"d/events=", "d.old/" + sym + "=d/" + sym, "d.old/events=d/events", "d.old/info.json=d/info.json"},
			undo:  []string{"d/" + sym + "=d/" + sym, "d/events=d/events", "d/info.json=d/info.json"},
		},
		{
			name: "two older traces", before: []string{"d/events", "d.old/events", "d.old/" + sym},
			after: []string{"d/events=", "d.old/events=d/events"},
			undo:  []string{"d/events=d/events", "d.old/events=d.old/events", "d.old/" + sym + "=d.old/" + sym},
		},
		{
			name: "what a killed recorder left", before: []string{"d/events", "d.old/events", ".d.dropped/events", ".d.dropped/info.json"},
			after: []string{"d/events=", "d.old/events=d/events"},
			undo:  []string{"d/events=d/events", "d.old/events=d.old/events"},
		},
		{
			name: "somebody's directory of that name", before: []string{"d/events", "d.old/events", ".d.dropped/thesis.tex"},
			after: []string{".d.dropped/thesis.tex=.d.dropped/thesis.tex", "d/events=", "d.old/events=d/events"},
			undo:  []string{".d.dropped/thesis.tex=.d.dropped/thesis.tex", "d/events=d/events", "d.old/events=d.old/events"},
		},
		{name: "a file", before: []string{"d"}, err: "d: exists and is not a trace directory"},
		{name: "somebody's directory", before: []string{"d/events", "d/thesis.tex"}, err: "d: exists and holds thesis.tex, which is not part of a trace"},
		{name: "somebody's old directory", before: []string{"d/events", "d.old/thesis.tex"}, err: "d.old: exists and holds thesis.tex"},
		{name: "a directory in it", before: []string{"d/events/"}, err: "d: exists and holds events"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, commit := range []bool{true, false} {
				root := t.TempDir()
				tree(t, root, tt.before...)
				before := list(t, root)
				d, err := Create(filepath.Join(root, "d"))
				if tt.err != "" {
					if err == nil || !strings.Contains(err.Error(), tt.err) {
						t.Errorf("error %v, want %s", err, tt.err)
					}
					if got := list(t, root); !slices.Equal(got, before) {
						t.Errorf("changed: %q", got)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want := tt.after
				if commit {
					d.Commit()
				} else {
					d.Rollback()
					want = tt.undo
				}
				got := list(t, root)
				slices.Sort(got)
				want = slices.Sorted(slices.Values(want))
				if !slices.Equal(got, want) {
					t.Errorf("commit %t: %q, want %q", commit, got, want)
				}
			}
		})
	}
}

// A trace that is being written is neither renamed nor removed.
func TestRecordingDirectory(t *testing.T) {
	root := t.TempDir()
	t.Chdir(root)
	first, err := Create("d")
	if err != nil {
		t.Fatal(err)
	}
	first.Commit()
	refused := func(want string) {
		t.Helper()
		before := list(t, root)
		_, err := Create("d")
		if !errors.Is(err, ErrRecording) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if after := list(t, root); !slices.Equal(after, before) {
			t.Errorf("changed: %q, was %q", after, before)
		}
	}
	refused("d is being recorded")
	if err := os.Rename("d", "d.old"); err != nil {
		t.Fatal(err)
	}
	tree(t, root, "d/events")
	refused("d.old is being recorded")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Create("d")
	if err != nil {
		t.Fatal(err)
	}
	// Giving up takes back only what this session made.
	if err := os.Rename("d", "mine"); err != nil {
		t.Fatal(err)
	}
	tree(t, root, "d/events")
	second.Rollback()
	if b, err := os.ReadFile("d/events"); err != nil || string(b) != "d/events" {
		t.Errorf("somebody else's: %q, %v", b, err)
	}
}

func writing(t *testing.T, path string) bool {
	t.Helper()
	dir, err := safefile.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return beingWritten(dir)
}

// A program that writes its trace alone maps the file as long as it runs.
func TestMappedDirectory(t *testing.T) {
	if path := os.Getenv("SESSION_TEST_MAP"); path != "" {
		mapUntilEOF(t, path)
		return
	}
	root := t.TempDir()
	t.Chdir(root)
	head := make([]byte, format.HeaderSize)
	pool.PutHeader(head, 0, format.HeaderSize, 0, trace.LayoutSlots, 0, clock.Reading{}, 0)
	if err := os.Mkdir("d", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("d/events", head, 0o666); err != nil {
		t.Fatal(err)
	}
	if writing(t, "d") {
		t.Error("nobody writes")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestMappedDirectory$")
	cmd.Env = append(os.Environ(), "SESSION_TEST_MAP="+filepath.Join(root, "d/events"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if !writing(t, "d") {
		t.Error("mapped, but not noticed")
	}
	in.Close()
	cmd.Wait()
	if writing(t, "d") {
		t.Error("nobody writes any more")
	}
}

// mapUntilEOF is the program of TestMappedDirectory.
func mapUntilEOF(t *testing.T, path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, format.HeaderSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	os.Stdout.WriteString("ok")
	io.Copy(io.Discard, os.Stdin)
	unix.Munmap(mem)
}

// TestLocked: while somebody keeps the directory locked, a trace is made where there is none, and an older one stays
// where it is. A socket that a killed recorder has left is part of its trace.
func TestLocked(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	parent, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	if err := unix.Flock(int(parent.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "d")
	d, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Listen()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	d.Commit()
	d.Close()
	before := shape(t, root)
	if _, err := Create(path); err == nil || !strings.Contains(err.Error(), "keeps its directory locked") {
		t.Errorf("an older trace, and a locked directory: %v", err)
	}
	if after := shape(t, root); !slices.Equal(after, before) {
		t.Errorf("%q, before %q", after, before)
	}
	parent.Close()
	if d, err = Create(path); err != nil {
		t.Fatal(err)
	}
	d.Commit()
	if _, err := os.Lstat(filepath.Join(root, "d.old", format.FileSocket)); err != nil {
		t.Error(err)
	}
	d.removeTrace("d.old")
	d.Close()
	if _, err := os.Lstat(path + ".old"); err == nil {
		t.Error("an older trace with a socket is not removed")
	}
}

// A file system that is not mounted any more takes its traces with it.
func TestUnmounted(t *testing.T) {
	place := t.TempDir()
	if err := unix.Mount("none", place, "tmpfs", 0, "size=1m"); err != nil {
		if !errors.Is(err, unix.EPERM) {
			t.Fatal(err)
		}
		t.Skip("only root can mount")
	}
	mounted := true
	defer func() {
		if mounted {
			_ = unix.Unmount(place, unix.MNT_DETACH)
		}
	}()
	d, err := Create(filepath.Join(place, "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.Commit()
	if name, moved := d.Where(); name != d.Name || moved {
		t.Errorf("%q, %v", name, moved)
	}
	if err := unix.Unmount(place, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	mounted = false
	if name, _ := d.Where(); name != "" {
		t.Errorf("it is in %q", name)
	}
}
