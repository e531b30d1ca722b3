//go:build linux

package tracedir

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/trace"
)

// nobody is another user, for tests that root runs.
const nobody = 65534

// What somebody else has put at the place of a trace is not written to, renamed or removed.
func TestForeign(t *testing.T) {
	root := os.Geteuid() == 0
	give := func(paths ...string) func(dir string) error {
		return func(dir string) error {
			for _, p := range paths {
				if err := os.Lchown(filepath.Join(dir, p), nobody, nobody); err != nil {
					return err
				}
			}
			return nil
		}
	}
	link := func(to, name string) func(dir string) error {
		return func(dir string) error { return os.Symlink(to, filepath.Join(dir, name)) }
	}
	for _, tt := range []struct {
		name   string
		root   bool // needs root
		before []string
		make   func(dir string) error
		err    string
	}{
		{"an empty directory", true, []string{"d/"}, give("d"), "d: exists and belongs to another user (65534)"},
		{"a trace", true, []string{"d/events"}, give("d"), "d: exists and belongs to another user (65534)"},
		{"an old trace", true, []string{"d/events", "d.old/events"}, give("d.old"),
			"d.old: exists and belongs to another user (65534)"},
		{"a link to a directory", false, []string{"e/"}, link("e", "d"), "d: exists and is not a trace directory"},
		{"a link to nothing", false, nil, link("e", "d"), "d: exists and is not a trace directory"},
		{"a link to an old trace", false, []string{"d/events", "e/events"}, link("e", "d.old"),
			"d.old: exists and is not a trace directory"},
		{"a link in a trace", false, []string{"d/events", "victim"}, link("../victim", "d/info.json"),
			"d: exists and holds info.json, which is not part of a trace"},
		{"a pipe", false, nil, func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "d"), 0o666) },
			"d: exists and is not a trace directory"},
		{"notes of a user", false, []string{"d/events", "d.old/events", "d.old/notes.sym"},
			func(string) error { return nil }, "d.old: exists and holds notes.sym, which is not part of a trace"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && !root {
				t.Skip("needs root: directories of another user")
			}
			dir := t.TempDir()
			t.Chdir(dir)
			tree(t, dir, tt.before...)
			if err := tt.make(dir); err != nil {
				t.Fatal(err)
			}
			before := shape(t, dir)
			d, err := Create("d")
			if err == nil {
				d.Rollback()
				t.Fatal("accepted")
			}
			if err.Error() != tt.err {
				t.Errorf("error %q, want %q", err, tt.err)
			}
			if after := shape(t, dir); !slices.Equal(after, before) {
				t.Errorf("changed: %q, was %q", after, before)
			}
		})
	}
}

// shape lists what is where, with kind, mode and target.
func shape(t *testing.T, root string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		to, _ := os.Readlink(p)
		out = append(out, strings.TrimPrefix(p, root)+" "+fi.Mode().String()+" "+to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A trace is for its user only, whatever the umask and the mode of a directory that is there; and a link that somebody
// manages to put into it is not followed.
func TestPrivate(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	for _, there := range []bool{false, true} {
		dir := t.TempDir()
		t.Chdir(dir)
		mode := uint32(0o700)
		if there {
			if err := os.Mkdir("d", 0o777); err != nil {
				t.Fatal(err)
			}
			mode = 0o755
		}
		d, err := Create("d")
		if err != nil {
			t.Fatal(err)
		}
		d.Commit()
		tree(t, dir, "victim", "victim2")
		if err := os.Symlink("../victim", "d/chunks"); err != nil {
			t.Fatal(err)
		}
		if f, err := d.CreateChunks(); err == nil {
			f.Close()
			t.Error("a link was followed")
		}
		if err := os.Symlink("../victim2", "d/info.json"); err != nil {
			t.Fatal(err)
		}
		if err := d.WriteInfo(&trace.Info{}); err == nil {
			t.Error("a link was taken for info.json")
		}
		os.Remove("d/info.json")
		os.Remove("d/chunks")
		f, err := d.CreateChunks()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := d.WriteInfo(&trace.Info{}); err != nil {
			t.Fatal(err)
		}
		err = d.WriteSymbols(1, func(w io.Writer) error { _, err := io.WriteString(w, "x"); return err })
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]uint32{
			"d": mode, "d/events": 0o600, "d/chunks": 0o600, "d/info.json": 0o600, "d/0000000000000001.sym": 0o600,
		} {
			var st unix.Stat_t
			if err := unix.Lstat(name, &st); err != nil || st.Mode&0o7777 != want {
				t.Errorf("%s: mode %o, %v; want %o", name, st.Mode, err, want)
			}
		}
		for _, v := range []string{"victim", "victim2"} {
			if b, err := os.ReadFile(v); err != nil || string(b) != v {
				t.Errorf("%s: %q, %v", v, b, err)
			}
		}
		d.Close()
	}
}

// What somebody puts in the place of the directory while it is written is left alone.
func TestSwapped(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	d, err := Create("d")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("d", "e"); err != nil {
		t.Fatal(err)
	}
	tree(t, dir, "d/events", "d/info.json")
	if err := d.WriteInfo(&trace.Info{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("e/info.json"); err != nil {
		t.Error(err)
	}
	d.Rollback()
	want := []string{"d/events=d/events", "d/info.json=d/info.json"}
	if got := list(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
