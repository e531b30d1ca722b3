package mapped

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("contents"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		f, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Data) != "contents" || f.Info.Size() != 8 || f.Path != p {
			t.Errorf("%s: %q, %d bytes, path %s", p, f.Data, f.Info.Size(), f.Path)
		}
		if err := errors.Join(f.Close(), f.Close()); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// Nothing but a regular file is opened, so that no path makes a reader wait.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := unix.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for target, name := range map[string]string{"fifo": "to-fifo", "/dev/null": "to-device", "loop": "loop"} {
		if err := os.Symlink(target, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("empty"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("secret"), []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for path, want := range map[string]string{
		at("fifo"): "not a regular file", at("to-fifo"): "not a regular file", at("to-device"): "not a regular file",
		dir: "not a regular file", "/dev/fd/" + strconv.Itoa(int(r.Fd())): "not a regular file", at("empty"): "empty file",
		at("none"): "no such file", at("loop"): "symbolic link", at("file\x00name"): "invalid argument",
	} {
		done := make(chan error, 1)
		go func() { _, err := Open(path); done <- err }()
		select {
		case err := <-done:
			if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", path, err, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: open waits", path)
		}
	}
	if _, err := Open(at("none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Open(at("empty")); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if _, err := Open(at("secret")); os.Geteuid() != 0 && !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}
