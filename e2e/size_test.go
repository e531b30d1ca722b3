package e2e

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// TestPatchedSize: a program of which all functions are traced grows by 20 % at most, and what is loaded of it by 15 %,
// memory that is not in the file included. The smaller its functions are, the more: git's and rg's are small. Those of
// other distributions than Debian 12 may be smaller still.
func TestPatchedSize(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("thunks are larger on arm64, and programs begin at multiples of 64 KiB")
	}
	needFentry(t)
	found := false
	for _, name := range []string{"git", "perl", "python3.11", "rg", "cmake"} {
		path := "/usr/bin/" + name
		if _, err := os.Stat(path); err != nil {
			continue // not among what tests install
		}
		found = true
		out := filepath.Join(t.TempDir(), name)
		if b, err := exec.Command(fentry, "patch", "-o", out, path).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", path, err, b)
		}
		file, loaded := imageSize(t, path)
		newFile, newLoaded := imageSize(t, out)
		grown := func(from, to uint64) float64 { return 100 * (float64(to)/float64(from) - 1) }
		t.Logf("%s: file %.1f %%, loaded %.1f %%", path, grown(file, newFile), grown(loaded, newLoaded))
		if grown(file, newFile) > 20 || grown(loaded, newLoaded) > 17 {
			t.Errorf("%s grows by %.1f %%, and what is loaded of it by %.1f %%", path, grown(file, newFile), grown(loaded, newLoaded))
		}
	}
	if !found {
		t.Skip("no program is installed whose size is known")
	}
}

// imageSize is the size of a file, and of the memory that its segments take.
func imageSize(t *testing.T, path string) (file, loaded uint64) {
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			loaded += p.Memsz
		}
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(st.Size()), loaded
}
