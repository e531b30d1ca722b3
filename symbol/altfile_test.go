package symbol

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// altSource has inlined functions from headers, which is what dwz moves to the common file.
const altSource = `#include <map>
#include <string>
#include <vector>
static inline __attribute__((always_inline)) int inner(int x) { return x * 3 + (int)std::to_string(x).size(); }
int work(std::vector<std::string> &v, int n) {
	std::map<int, std::string> m;
	for (int i = 0; i < n; i++) { v.push_back(std::to_string(inner(i))); m[i] = v.back(); }
	return (int)m.size();
}
int main(int argc, char **argv) { std::vector<std::string> v; return work(v, argc) == 12345; }
`

// frameText is what a program's debug information says of some addresses of each function.
func frameText(t *testing.T, path string, o Options) string {
	t.Helper()
	tab, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer tab.Close()
	var b strings.Builder
	for _, f := range tab.Funcs() {
		for part := range uint64(8) {
			addr := f.Addr + f.Size*part/8
			frames, err := tab.Frames(addr)
			if err != nil {
				t.Fatalf("%s: %#x: %v", path, addr, err)
			}
			fmt.Fprintf(&b, "%#x %+v\n", addr, frames)
		}
	}
	return b.String()
}

// commandsIn returns what runs a command in a directory, which must succeed.
func commandsIn(t *testing.T, dir string) func(name string, args ...string) {
	return func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
}

// TestAltFile: what dwz has moved to a common file, as for Debian's debug packages, is found there; without that file,
// inlined functions have no names, and all else is as it was.
func TestAltFile(t *testing.T) {
	testtool.Need(t, "g++", "dwz", "strip", "objcopy")
	for _, version := range []string{"4", "5"} {
		dir := t.TempDir()
		do := commandsIn(t, dir)
		for _, name := range []string{"a", "b"} {
			src := altSource + "int " + name + "(int x) { return x + 1; }\n"
			if err := os.WriteFile(filepath.Join(dir, name+".cc"), []byte(src), 0o644); err != nil {
				t.Fatal(err)
			}
			do("g++", "-O2", "-g", "-gdwarf-"+version, "-Wl,--build-id", name+".cc", "-o", name)
		}
		program := filepath.Join(dir, "a")
		none := Options{DebugDirs: []string{}}
		want := frameText(t, program, none)
		if strings.Count(want, "Inlined:true") < 10 {
			t.Fatalf("few inlined functions:\n%s", want)
		}
		do("dwz", "-m", "common.debug", "a", "b")
		if got := frameText(t, program, none); got != want {
			t.Errorf("DWARF %s, beside the program:\n%s\nwant\n%s", version, got, want)
		}
		// By its build-id, from where distributions install it, and for a program whose own debug file is separate.
		b, err := os.ReadFile(filepath.Join(dir, "common.debug"))
		if err != nil {
			t.Fatal(err)
		}
		common, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		id := common.BuildID()
		do("objcopy", "--only-keep-debug", "a", "a.debug")
		do("strip", "a")
		do("objcopy", "--add-gnu-debuglink=a.debug", "a")
		if got := frameText(t, program, none); got != want {
			t.Errorf("DWARF %s, with a debug file:\n%s\nwant\n%s", version, got, want)
		}
		debug := filepath.Join(dir, "debug")
		place := filepath.Join(debug, ".build-id", buildIDName(id))
		if err := os.MkdirAll(filepath.Dir(place), 0o777); err != nil {
			t.Fatal(err)
		}
		do("mv", "common.debug", place)
		if got := frameText(t, program, Options{DebugDirs: []string{debug}}); got != want {
			t.Errorf("DWARF %s, by build-id:\n%s\nwant\n%s", version, got, want)
		}
		fetched := Options{DebugDirs: []string{}, Fetch: func(b []byte) (string, error) {
			if string(b) != string(id) {
				return "", os.ErrNotExist
			}
			return place, nil
		}}
		if got := frameText(t, program, fetched); got != want {
			t.Errorf("DWARF %s, fetched:\n%s\nwant\n%s", version, got, want)
		}
		if got := frameText(t, program, none); got == want || strings.Count(got, "\n") != strings.Count(want, "\n") {
			t.Errorf("DWARF %s, without the common file:\n%s", version, got)
		}
	}
}
