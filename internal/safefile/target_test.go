package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
)

// The place to write a file at is where the links of this user and of root lead, however they are written.
func TestTarget(t *testing.T) {
	root := t.TempDir()
	for _, d := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	links := map[string]string{
		"a/here": "file", "a/up": "../c/up2", "c/up2": "../a/b/new", "a/abs": filepath.Join(root, "c/file"),
		"a/b/loop": "loop", "a/todir": "../c", "a/slash": "../c/", "a/far": "nowhere/x",
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	for path, want := range map[string]string{
		"x": "x", "./x": "x", "a/x": "a/x", "a//x": "a/x", filepath.Join(root, "a/x"): "a/x", "a/here": "a/file",
		"a/up": "a/b/new", "a/abs": "c/file", "a/todir": "c", "a/todir/x": "c/x", "a/b/../x": "a/x",
	} {
		d, name, err := safefile.Target(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		f, err := d.Create("probe", os.O_WRONLY)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		at := filepath.Join(filepath.Dir(want), "probe")
		if err := os.Remove(filepath.Join(root, at)); err != nil || name != filepath.Base(want) {
			t.Errorf("%s: name %s in %s, %v; want %s", path, name, d.Name(), err, want)
		}
		d.Close()
	}
	for path, want := range map[string]error{
		"": unix.EISDIR, "a/": unix.EISDIR, ".": unix.EISDIR, "a/..": unix.EISDIR, "/": unix.EISDIR,
		"none/x": fs.ErrNotExist, "a/far": fs.ErrNotExist, "a/b/loop": unix.ELOOP, "a/slash": unix.EISDIR,
		"x\x00y": fs.ErrInvalid,
	} {
		var pe *fs.PathError
		if _, _, err := safefile.Target(path); !errors.Is(err, want) || !errors.As(err, &pe) || pe.Path != path {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("not root: links of other users are not tried")
		return
	}
	for _, link := range []string{"a/here", "c/up2"} {
		if err := os.Lchown(link, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for path, link := range map[string]string{"a/here": "a/here", "a/up": "c/up2"} {
		_, _, err := safefile.Target(path)
		if err == nil || !strings.Contains(err.Error(), "/up2 is a symbolic link of another user (65534)") &&
			!strings.Contains(err.Error(), link+" is a symbolic link of another user (65534)") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
