package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
)

// fill makes one of everything in a new directory and returns the names.
func fill(t *testing.T) (dir string, kinds []string) {
	t.Helper()
	dir = t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(at("file"), []byte("contents"), 0o640))
	check(unix.Mkfifo(at("fifo"), 0o600))
	check(os.Mkdir(at("dir"), 0o700))
	check(unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0))
	for name, target := range map[string]string{
		"link": "file", "to-fifo": "fifo", "to-device": "/dev/full", "loop": "loop", "dangling": "none",
	} {
		check(os.Symlink(target, at(name)))
	}
	return dir, []string{"file", "fifo", "dir", "socket", "link", "to-fifo", "to-device", "loop", "dangling", "none"}
}

// soon fails the test if f waits.
func soon(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s: open waits", what)
		return nil
	}
}

func closing(f *os.File, err error) error {
	if err == nil {
		f.Close()
	}
	return err
}

// Whatever is at a path, opening does not wait, and gives regular files only.
func TestOpen(t *testing.T) {
	dir, kinds := fill(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pipe := "/dev/fd/" + strconv.Itoa(int(r.Fd()))
	want := map[string]error{
		"file": nil, "link": nil, "loop": unix.ELOOP, "dangling": fs.ErrNotExist, "none": fs.ErrNotExist,
	}
	for _, name := range append(kinds, pipe) {
		path := filepath.Join(dir, name)
		if name == pipe {
			path = pipe
		}
		err := soon(t, path, func() error { return closing(safefile.Open(path)) })
		w, ok := want[name]
		if !ok {
			w = safefile.ErrNotRegular
		}
		if !errors.Is(err, w) {
			t.Errorf("%s: %v, want %v", name, err, w)
		}
		var pe *fs.PathError
		if err != nil && (!errors.As(err, &pe) || pe.Path != path) {
			t.Errorf("%s: %#v does not name the path", name, err)
		}
	}
}

// Below a directory no link is followed, for reading and for writing, and no name leads out of it.
func TestDirOpen(t *testing.T) {
	path, kinds := fill(t)
	d, err := safefile.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	want := map[string]error{
		"file": nil, "none": fs.ErrNotExist, "../x": fs.ErrInvalid, "": fs.ErrInvalid, ".": fs.ErrInvalid,
		"..": fs.ErrInvalid, "/etc/passwd": fs.ErrInvalid, "dir/../file": fs.ErrInvalid, "file\x00": fs.ErrInvalid,
	}
	for _, link := range []string{"link", "to-fifo", "to-device", "loop", "dangling"} {
		want[link] = safefile.ErrLink
	}
	for _, name := range append(kinds, "../x", "", ".", "..", "/etc/passwd", "dir/../file", "file\x00") {
		w, ok := want[name]
		if !ok {
			w = safefile.ErrNotRegular
		}
		for _, flags := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC | os.O_CREATE} {
			if err := soon(t, name, func() error { return closing(d.OpenFile(name, flags)) }); !errors.Is(err, w) {
				t.Errorf("%q, flags %#x: %v, want %v", name, flags, err, w)
			}
		}
		w = fs.ErrExist
		if name == "none" {
			w = nil
		} else if errors.Is(want[name], fs.ErrInvalid) {
			w = fs.ErrInvalid
		}
		if err := closing(d.Create(name, os.O_RDWR)); !errors.Is(err, w) {
			t.Errorf("create %q: %v, want %v", name, err, w)
		}
	}
	if st, err := d.Lstat("none"); err != nil || st.Mode != unix.S_IFREG|0o600 {
		t.Errorf("a new file has mode %o, %v", st.Mode, err)
	}
	if st, err := d.Lstat("link"); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		t.Errorf("Lstat of a link: mode %o, %v", st.Mode, err)
	}
	if _, err := d.OpenDir("link"); err == nil {
		t.Error("a link was opened as a directory")
	}
}

// The directory is the one that was opened, wherever it is now, and what is made in it is this user's alone.
func TestDir(t *testing.T) {
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := safefile.OpenDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	d, err := p.Mkdir("a")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if st, err := d.Stat(); err != nil || st.Mode&0o7777 != 0o700 {
		t.Errorf("a new directory has mode %o, %v", st.Mode, err)
	}
	if _, err := p.Mkdir("a"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("made twice: %v", err)
	}
	if err := p.Rename("a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := p.Rename("b", "../b"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("renamed to somewhere else: %v", err)
	}
	if err := os.Mkdir(filepath.Join(parent, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := d.Create("f", os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("1234")
	f.Close()
	if b, err := os.ReadFile(filepath.Join(parent, "b", "f")); string(b) != "1234" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := d.ReadFile("f", 4); string(b) != "1234" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := d.ReadFile("f", 3); !errors.Is(err, safefile.ErrTooLarge) {
		t.Errorf("a file longer than the limit: %v", err)
	}
	if _, err := safefile.ReadFile(filepath.Join(parent, "b", "f"), 3); !errors.Is(err, safefile.ErrTooLarge) {
		t.Errorf("a file longer than the limit: %v", err)
	}
	for range 2 {
		if es, err := d.ReadDir(1); err != nil || len(es) != 1 || es[0].Name() != "f" {
			t.Errorf("%v, %v", es, err)
		}
	}
	if _, err := d.ReadDir(0); !errors.Is(err, safefile.ErrTooLarge) {
		t.Errorf("more files than the limit: %v", err)
	}
	if err := errors.Join(d.Remove("f"), p.Rmdir("b")); err != nil {
		t.Error(err)
	}
}

// A directory is ours if nobody else can change what is in it.
func TestOurs(t *testing.T) {
	path := t.TempDir()
	try := func(change error) error {
		t.Helper()
		if change != nil {
			t.Fatal(change)
		}
		d, err := safefile.OpenDir(path)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		return d.Ours()
	}
	for mode, ok := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o770: false, 0o702: false, 0o1777: false} {
		m := uint32(mode)
		if err := try(unix.Chmod(path, m)); (err == nil) != ok {
			t.Errorf("mode %o: %v", m, err)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("not root: directories of other users are not tried")
		return
	}
	if err := errors.Join(os.Chmod(path, 0o700), os.Chown(path, 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	if err := try(nil); err == nil {
		t.Error("another user's directory")
	}
}
