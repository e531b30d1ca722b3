//go:build linux

package session

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
				d, err := createDir(filepath.Join(root, "d"))
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
					d.commit()
				} else {
					d.rollback()
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

// A directory that is renamed by the next session keeps what it is written.
func TestRenamedDirectory(t *testing.T) {
	root := t.TempDir()
	first, err := createDir(filepath.Join(root, "d"))
	if err != nil {
		t.Fatal(err)
	}
	first.commit()
	second, err := createDir(filepath.Join(root, "d"))
	if err != nil {
		t.Fatal(err)
	}
	second.commit()
	s := session{dir: first}
	s.beginInfo()
	s.info.Command = []string{"first"}
	if err := first.writeInfo(&s.info); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "d.old", "info.json")); err != nil || !strings.Contains(string(b), "first") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestLookPath(t *testing.T) {
	root := t.TempDir()
	tree(t, root, "a/tool", "b/tool", "b/data", "c/dir/", "a/deep/x")
	for _, f := range []string{"b/tool"} {
		if err := os.Chmod(filepath.Join(root, f), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", root+"/missing:"+root+"/a:"+root+"/b:"+root+"/c")
	for _, tt := range []struct {
		name, want string
		err        error
	}{
		{"tool", root + "/b/tool", nil},
		{"data", "", ErrNotExecutable},
		{"dir", "", ErrNotExecutable},
		{"nothing", "", ErrNotFound},
		{"", "", ErrNotFound},
		{root + "/b/tool", root + "/b/tool", nil},
		{root + "/a/tool", "", ErrNotExecutable},
		{root + "/c/dir", "", ErrNotExecutable},
		{root + "/a/tool/x", "", ErrNotFound},
		{"./tool", "", ErrNotFound},
		{"/dev/null", "", ErrNotExecutable},
	} {
		got, err := LookPath(tt.name)
		if !errors.Is(err, tt.err) || err == nil && got != tt.want {
			t.Errorf("%q: %q, %v; want %q, %v", tt.name, got, err, tt.want, tt.err)
		}
	}
	t.Chdir(root + "/b")
	t.Setenv("PATH", ":/bin")
	if got, err := LookPath("tool"); got != "./tool" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	os.Unsetenv("PATH")
	if got, err := LookPath("sh"); got != "/bin/sh" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
