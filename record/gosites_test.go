package record

import (
	"debug/elf"
	"os"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestGoRefused: of a Go image that is refused no function is traced, though some of its code for AArch64 looks like what
// compilers of C leave at entries.
func TestGoRefused(t *testing.T) {
	b, err := os.ReadFile(testtool.Go(t, "arm64", "../testdata/gostress"))
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
