package record

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
)

// TestGoRefused: of a Go image that is refused no function is traced, though some of its code for AArch64 looks like what
// compilers of C leave at entries.
func TestGoRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	build := exec.Command("go", "build", "-o", path, "../testdata/gostress")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=arm64", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	f.Header.Type = elf.ET_DYN // as a shared library
	sites, err := Find(f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for i := range sites {
		if sites[i].Traceable() {
			t.Errorf("%s can be traced", sites[i].Name)
		}
		if sites[i].Reason == ReasonGoImage {
			left++
		}
	}
	if left == 0 {
		t.Error("there is no function that looks like one that can be traced")
	}
}
