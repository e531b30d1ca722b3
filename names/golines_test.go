package names

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGoLines: the source lines of a Go program without debug information are those that debug information has.
func TestGoLines(t *testing.T) {
	dir := t.TempDir()
	open := func(name string, args ...string) *Lines {
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", append(append([]string{"build", "-o", path}, args...), "../testdata/gostress")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64", "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		l, err := FindLines(Image{Paths: []string{path}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	full, stripped := open("full"), open("stripped", "-ldflags=-w")
	if full.golang != nil || stripped.golang == nil {
		t.Fatal("lines are not from where they should be")
	}
	funcs, err := GoFunctions(Image{Paths: []string{filepath.Join(dir, "full")}})
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for i := range funcs {
		want, ok, err := full.At(funcs[i].Addr)
		if err != nil || !ok || want.Line == 0 {
			continue // made by the linker
		}
		got, ok, err := stripped.At(funcs[i].Addr)
		if err != nil || !ok || got != want {
			t.Errorf("%s: %v, %v; debug information says %v", funcs[i].Name, got, err, want)
			continue
		}
		same++
	}
	if same < 1000 {
		t.Errorf("only %d functions have lines", same)
	}
}
