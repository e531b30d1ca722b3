//go:build linux

package launch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLookPath(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o666, "b/tool": 0o777, "b/data": 0o666, "a/deep/x": 0o666, "c/dir/x": 0o666} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, mode); err != nil {
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
