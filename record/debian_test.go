package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestDebianARM64 looks at programs that nobody compiled for tracing: compilers have left no site in them, and every
// function of their symbol tables and unwind tables appears.
func TestDebianARM64(t *testing.T) {
	packages := []string{"python3.11-minimal", "libssl3"}
	if testtool.Wide() {
		packages = append(packages, "cpp-12", "libaom3", "libdav1d6", "libopenblas0-pthread", "libx265-199", "golang-1.19-go")
	}
	images := 0
	for _, pkg := range packages {
		err := filepath.WalkDir(debs.ARM64(t, pkg), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil || !strings.HasPrefix(string(b), "\x7fELF") {
				return err
			}
			f, err := elfio.Parse(b)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				return nil
			}
			sites, err := Find(f, Options{Plain: PlainNone})
			if err != nil {
				if !strings.Contains(err.Error(), "is not a linked program") {
					t.Errorf("%s: %v", path, err)
				}
				return nil
			}
			images++
			fdes, err := ehframe.Read(f)
			if err != nil {
				t.Errorf("%s: %v", path, err)
			}
			if len(sites) < fdes.Len()*9/10-16 { // some describe stubs of the linker
				t.Errorf("%s: %d functions, %d unwind entries", path, len(sites), fdes.Len())
			}
			for i := range sites {
				if s := &sites[i]; s.Kind != KindNone {
					t.Errorf("%s: %s at %#x: %v %s", path, s.Display(), s.Addr, s.Kind, s.Reason)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if images < 5 {
		t.Errorf("%d images", images)
	}
}

// TestCoverageARM64 holds docs/coverage.md to Debian's programs for arm64.
func TestCoverageARM64(t *testing.T) {
	for _, p := range []struct {
		pkg, path string
		share     float64
	}{
		{"bash", "bin/bash", .999},
		{"cpp-12", "usr/lib/gcc/aarch64-linux-gnu/12/cc1", .999},
		{"git", "usr/bin/git", .999},
		{"perl-base", "usr/bin/perl", .999},
		{"python3.11-minimal", "usr/bin/python3.11", .999},
	} {
		path := filepath.Join(debs.ARM64(t, p.pkg), p.path)
		checkShare(t, p.path, findWith(t, path, Options{}), p.share)
	}
}
