package record

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestGoThreadLocal: a Go program for AArch64 with C code is refused if that has so much thread-local memory that events do
// not reach the word behind it.
func TestGoThreadLocal(t *testing.T) {
	testtool.Need(t, "aarch64-linux-gnu-gcc")
	prog := filepath.Join(t.TempDir(), "prog")
	build := exec.Command("go", "build", "-trimpath", "-o", prog, "../testdata/gocgo")
	build.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "CGO_ENABLED=1", "GOARCH=arm64", "CC=aarch64-linux-gnu-gcc")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f := open(t, prog)
	tls := &f.Progs[f.ProgIndex(elf.PT_TLS)]
	for size, refused := range map[uint64]bool{tls.Memsz: false, 32<<10 - 64: false, 32 << 10: true, ^uint64(0): true} {
		tls.Memsz = size
		if why := GoRefusal(f); strings.Contains(why, "thread-local memory") != refused || !refused && why != "" {
			t.Errorf("%d bytes: %q", size, why)
		}
	}
}

// TestGoRefused: of a Go image that is refused no function is traced, though some of its code for AArch64 looks like what
// compilers of C leave at entries.
func TestGoRefused(t *testing.T) {
	f := open(t, testtool.Go(t, "arm64", "../testdata/gostress"))
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
