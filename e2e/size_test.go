package e2e

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestPatchedSize: a program of which all functions are traced grows by 20 % at most, and what is loaded of it by 15 %,
// memory that is not in the file included. The smaller its functions are, the more: git's and rg's are small. Those of
// other distributions than Debian 12 may be smaller still.
func TestPatchedSize(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the sizes of installed programs are known for another machine")
	}
	needFentry(t)
	found := false
	for _, name := range []string{"git", "perl", "python3.11", "rg", "cmake"} {
		path := "/usr/bin/" + name
		if _, err := os.Stat(path); err != nil {
			continue // not among what tests install
		}
		found = true
		checkGrowth(t, path, 20, 17)
	}
	if !found {
		t.Skip("no program is installed whose size is known")
	}
}

// TestPatchedSizeARM64 is TestPatchedSize for Debian's programs for arm64, where thunks have 48 bytes.
func TestPatchedSizeARM64(t *testing.T) {
	needFentry(t)
	checkGrowth(t, filepath.Join(debs.ARM64(t, "git"), "usr/bin/git"), 17, 15)
	if testtool.Wide() {
		checkGrowth(t, filepath.Join(debs.ARM64(t, "python3.11-minimal"), "usr/bin/python3.11"), 11, 10)
		checkGrowth(t, filepath.Join(debs.ARM64(t, "cpp-12"), "usr/lib/gcc/aarch64-linux-gnu/12/cc1"), 12, 11)
	}
}

// checkGrowth patches a program, and checks by how much it grows, in per cent.
func checkGrowth(t *testing.T, path string, mostFile, mostLoaded float64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if b, err := exec.Command(fentry, "patch", "-o", out, path).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, b)
	}
	file, loaded := imageSize(t, path)
	newFile, newLoaded := imageSize(t, out)
	grown := func(from, to uint64) float64 { return 100 * (float64(to)/float64(from) - 1) }
	t.Logf("%s: file %.1f %%, loaded %.1f %%", path, grown(file, newFile), grown(loaded, newLoaded))
	if grown(file, newFile) > mostFile || grown(loaded, newLoaded) > mostLoaded {
		t.Errorf("%s grows by %.1f %%, and what is loaded of it by %.1f %%", path, grown(file, newFile), grown(loaded, newLoaded))
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
