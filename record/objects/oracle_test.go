package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/record/objects"
)

// luaSources returns the C files of Lua and a directory with the header Debian's build would configure.
func luaSources(t *testing.T) (files []string, include string) {
	t.Helper()
	var missing *corpus.Missing
	if _, err := corpus.Build(context.Background(), corpus.Lua,
		corpus.Flags{C: []string{"-O2", "-pg", "-mfentry"}}); errors.As(err, &missing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	cache, err := corpus.Dir()
	if err != nil {
		t.Fatal(err)
	}
	files, err = filepath.Glob(filepath.Join(cache, "source", "lua5.4", "src", "*.c"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of Lua: %v", err)
	}
	include = t.TempDir()
	write(t, filepath.Join(include, "lua5.4-deb-multiarch.h"), []byte("#define DEB_HOST_MULTIARCH \"any\"\n"))
	if !testtool.Wide() {
		files = slices.DeleteFunc(files, func(f string) bool {
			return !slices.Contains([]string{"lapi.c", "lstate.c"}, filepath.Base(f))
		})
	}
	return files, include
}

// wideSources returns the C files of zstd and, for the compilers of this machine, SQLite in one file, when FENTRY_WIDE
// is set. They take the time, so not every machine gets them at every level.
func wideSources(t *testing.T, cc, level string) []string {
	t.Helper()
	native := cc == "gcc" || cc == "clang"
	if !testtool.Wide() || !native && level != "-O2" {
		return nil
	}
	cache, err := corpus.Dir()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	programs := map[corpus.Name]string{corpus.Zstd: filepath.Join("source", "libzstd", "lib", "*", "*.c")}
	if native && (level == "-O2" || level == "-O0") { // the largest by far
		programs[corpus.SQLite] = filepath.Join("built", "sqlite-amalgamation", "sqlite3.c")
	}
	for name, pattern := range programs {
		if _, err := corpus.Build(context.Background(), name,
			corpus.Flags{C: []string{"-O2", "-pg", "-mfentry"}}); err != nil {
			t.Skip(err)
		}
		files, err := filepath.Glob(filepath.Join(cache, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no sources of %s: %v", name, err)
		}
		out = append(out, files...)
	}
	return slices.DeleteFunc(out, func(f string) bool {
		return strings.Contains(f, "/legacy/") || strings.Contains(f, "/deprecated/") || strings.Contains(f, "/dll/")
	})
}

// TestAgainstRecordmcount compiles Lua for every machine and compares with recordmcount and with objdump. Where
// recordmcount is right, sets of sites are equal, and with Compat the files; where not, the difference is one of those
// known, and objdump says who is right.
func TestAgainstRecordmcount(t *testing.T) {
	tool := recordmcount(t)
	files, include := luaSources(t)
	levels := []string{"-O2", "-O1 -ffunction-sections -fno-asynchronous-unwind-tables"}
	if testtool.Wide() {
		levels = append(levels, "-O0", "-O3", "-Os")
	}
	var sum tally
	defer func() { t.Log(sum.String()) }()
	t.Run("machines", func(t *testing.T) {
		for _, m := range machineTests {
			if strings.Contains(m.flags, "--target=") || strings.Contains(m.flags, "-mabi") ||
				strings.Contains(m.flags, "-mno-abicalls") || strings.Contains(m.flags, "-m32") ||
				strings.Contains(m.flags, "-mx32") {
				continue // no C library for it
			}
			tool := tool
			if beyondRecordmcount(m.flags) {
				if !testtool.Wide() {
					continue
				}
				tool = ""
			}
			for _, level := range levels {
				if strings.HasPrefix(m.cc, "s390x") && strings.Contains(level, "-fno-async") {
					continue // gcc 12 writes assembly there that it cannot assemble
				}
				if !testtool.Wide() && m.cc != "gcc" && !strings.HasPrefix(m.cc, "mips") && level != "-O2" {
					continue
				}
				t.Run(m.cc+" "+m.flags+" "+level, func(t *testing.T) {
					t.Parallel()
					testtool.Need(t, m.cc)
					more := wideSources(t, m.cc, level)
					for _, src := range slices.Concat(files, more) {
						obj := filepath.Join(t.TempDir(), "x.o")
						argv := append([]string{m.cc, "-std=gnu11", "-w", "-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3", "-I", include},
							strings.Fields(m.flags+" "+level)...)
						out, err := exec.Command(argv[0], append(argv[1:], "-c", src, "-o", obj)...).CombinedOutput()
						if bytes.Contains(out, []byte("No such file or directory")) {
							t.Skipf("no C library for %s: apt-get install libc6-dev-*-cross", m.cc)
						}
						if err != nil {
							t.Fatalf("%v: %s", err, out)
						}
						compare(t, tool, objdumpOf(m.cc), obj, &sum)
					}
				})
			}
		}
	})
}

// beyondRecordmcount reports whether recordmcount is no judge of what compilers make of the flags: it takes every
// relocation of a call for one.
func beyondRecordmcount(flags string) bool {
	for _, f := range []string{"-mxgot", "-mlongcall", "-mlong-calls", "-mmicromips"} {
		if strings.Contains(flags, f) {
			return true
		}
	}
	return false
}

// tally counts what comparisons came to.
type tally struct {
	mu        sync.Mutex
	objects   int
	sites     int
	identical int            // objects of which recordmcount and Compat make the same file
	explained map[string]int // sites recordmcount has elsewhere, objects it refuses
}

func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d objects with %d sites, all where objdump sees them; %d files identical; differences of "+
		"recordmcount: %v", s.objects, s.sites, s.identical, s.explained)
}

// compare compares an object with its table with what objdump says of its code and, if tool is not empty, with what
// recordmcount makes of it.
func compare(t *testing.T, tool, objdump, path string, sum *tally) {
	t.Helper()
	orig := read(t, path)
	ours := record(t, orig, objects.Options{})
	compat := record(t, orig, objects.Options{Compat: true})
	ob, err := objects.Parse(orig, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all []objects.Site // the recorded ones
	var have []place       // all
	for s := range ob.Sites() {
		if s.Form == objects.FormAddress {
			t.Errorf("%s: address taken at %#x", path, s.Off)
			continue
		}
		have = append(have, place{section: ob.File().Sections[s.Section].Name, off: s.Off})
		if s.Listed {
			all = append(all, s)
		}
	}
	want := truth(t, objdump, path)
	slices.SortFunc(have, comparePlaces)
	if !slices.EqualFunc(have, want, func(a, b place) bool { return comparePlaces(a, b) == 0 }) {
		t.Errorf("%s: sites %v, objdump sees %v", path, have, want)
	}
	for _, b := range [][]byte{ours, compat} {
		if n := len(entries(t, b)); n != len(all) {
			t.Errorf("%s: %d entries for %d sites", path, n, len(all))
		}
	}
	sum.mu.Lock()
	defer sum.mu.Unlock()
	if sum.explained == nil {
		sum.explained = map[string]int{}
	}
	sum.objects++
	sum.sites += len(all)
	if tool == "" {
		return
	}
	if out, err := exec.Command(tool, path).CombinedOutput(); err != nil {
		switch {
		case bytes.Contains(out, []byte("Cannot find symbol for section")):
			sum.explained["refused, no symbol in a section"]++
		case bytes.Contains(out, []byte("unrecognized e_machine")):
			sum.explained["refused, machine"]++
		default:
			t.Errorf("recordmcount %s: %v: %s", path, err, out)
		}
		return
	}
	theirs := read(t, path)
	their := entries(t, theirs)
	explained := 0
	last := map[int]uint64{}
	var before uint64
	for _, s := range all {
		is := func(off uint64) bool { return their[entry{s.Section, off}] }
		why := ""
		switch {
		case is(s.Off):
		case s.Form == objects.FormGOT && s.Len != 8 && is(s.Off+1), s.Form == objects.FormRegister && is(s.Off+1):
			why = "inside the instruction"
		case s.Form == objects.FormGOT && s.Off > s.Reloc && is(s.Reloc-1):
			why = "inside the instruction that loads the address, which other instructions separate from the call"
		case s.Len == 18 && is(s.Off-6), s.Len == 6 && is(s.Off-12):
			why = "s390x, 14 bytes in front of the relocation"
		case strings.HasPrefix(objdump, "mips") && s.Reloc == before+4:
			why = "MIPS, missing: 4 bytes behind the call before, which can be in another section"
		case s.Form == objects.FormGOT && s.Len == 8 && last[s.Section] == 0 && s.Reloc == before+8:
			why = "MIPS, missing: its second half is 4 bytes behind the call before"
		case strings.HasPrefix(objdump, "sh4-"):
			why = "SuperH, the addend is where the linker does not look"
		default:
			t.Errorf("%s: recordmcount has no entry for the site %+v", path, s)
		}
		if why != "" {
			explained++
			sum.explained[why]++
		}
		last[s.Section], before = s.Off, s.Reloc
		if s.Form == objects.FormGOT && s.Len == 8 {
			before = s.Reloc + 4 // of the jalr
		}
	}
	if explained > 0 || len(their) != len(all) {
		if explained == 0 {
			t.Errorf("%s: recordmcount has %d entries, there are %d sites", path, len(their), len(all))
		}
		return
	}
	if !bytes.Equal(compat, quiet(theirs, len(orig))) {
		t.Errorf("%s: the file differs from recordmcount's", path)
		return
	}
	sum.identical++
}

type entry struct {
	section int
	off     uint64
}

// entries returns what the tables of an object name.
func entries(t *testing.T, b []byte) map[entry]bool {
	t.Helper()
	ob, err := objects.Parse(b, objects.Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[entry]bool{}
	for sec, off := range ob.Entries() {
		out[entry{sec, off}] = true
	}
	return out
}

// quiet returns recordmcount's file, whose original had size bytes, with zeros between the name table and the section
// headers: recordmcount leaves there what its memory held.
func quiet(b []byte, size int) []byte {
	f, err := elfio.Parse(b)
	if err != nil || len(b) == size {
		return b
	}
	names := f.Sections[f.Header.Shstrndx]
	out := bytes.Clone(b)
	if end := names.Off + names.Size; end <= f.Header.Shoff {
		clear(out[end:f.Header.Shoff])
	}
	return out
}
