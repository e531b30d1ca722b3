package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/record/objects"
)

// recordmcount builds the kernel's program from the sources in the cache. They are fetched from Debian's package of the
// kernel source, 140 MB, the first time.
func recordmcount(t *testing.T) string {
	t.Helper()
	need(t, "gcc")
	cache, err := corpus.Dir()
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(cache, "recordmcount")
	src := filepath.Join(dir, "recordmcount.c")
	if _, err := os.Stat(src); errors.Is(err, os.ErrNotExist) {
		fetchRecordmcount(t, dir)
	}
	bin := filepath.Join(t.TempDir(), "recordmcount")
	command(t, "gcc", "-O2", "-w", "-o", bin, src)
	return bin
}

func fetchRecordmcount(t *testing.T, dir string) {
	for _, tool := range []string{"apt-get", "ar", "tar", "xz"} {
		need(t, tool)
	}
	tmp := t.TempDir()
	const script = `set -e
apt-get download -q linux-source-6.1
ar p linux-source-6.1_*.deb data.tar.xz | tar xJf -
tar xJf usr/src/linux-source-6.1.tar.xz linux-source-6.1/scripts/recordmcount.c linux-source-6.1/scripts/recordmcount.h`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("Debian's kernel source cannot be had: %v\n%s", err, out)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"recordmcount.h", "recordmcount.c"} {
		write(t, filepath.Join(dir, f), read(t, filepath.Join(tmp, "linux-source-6.1/scripts", f)))
	}
}

// luaSources returns the C files of Lua and a directory with the header Debian's build would configure.
func luaSources(t *testing.T) (files []string, include string) {
	t.Helper()
	var missing *corpus.Missing
	if _, err := corpus.Build(context.Background(), corpus.Lua, corpus.Flags{C: []string{"-O2", "-pg", "-mfentry"}}); errors.As(err, &missing) {
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
	if os.Getenv("FENTRY_WIDE") == "" {
		files = slices.DeleteFunc(files, func(f string) bool {
			return !slices.Contains([]string{"lapi.c", "lstate.c"}, filepath.Base(f))
		})
	}
	return files, include
}

// wideSources returns the C files of zstd and, for the compilers of this machine, SQLite in one file, when FENTRY_WIDE is
// set. They take the time, so not every machine gets them at every level.
func wideSources(t *testing.T, cc, level string) []string {
	t.Helper()
	native := cc == "gcc" || cc == "clang"
	if os.Getenv("FENTRY_WIDE") == "" || !native && level != "-O2" {
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
		if _, err := corpus.Build(context.Background(), name, corpus.Flags{C: []string{"-O2", "-pg", "-mfentry"}}); err != nil {
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

// TestAgainstRecordmcount compiles Lua for every machine and compares with recordmcount. Where that is right, sets of
// sites are equal, and with Compat the files; where not, the difference is one of those known, and the relocations say
// who is right.
func TestAgainstRecordmcount(t *testing.T) {
	tool := recordmcount(t)
	files, include := luaSources(t)
	levels := []string{"-O2", "-O1 -ffunction-sections -fno-asynchronous-unwind-tables"}
	if os.Getenv("FENTRY_WIDE") != "" {
		levels = append(levels, "-O0", "-O3", "-Os")
	}
	for _, m := range machineTests {
		if strings.Contains(m.flags, "--target=") || strings.Contains(m.flags, "-mabi") || strings.Contains(m.flags, "-mno-abicalls") || strings.Contains(m.flags, "-m32") || strings.Contains(m.flags, "-mx32") {
			continue // no C library for it
		}
		for _, level := range levels {
			if strings.HasPrefix(m.cc, "s390x") && strings.Contains(level, "-fno-async") {
				continue // gcc 12 writes assembly there that it cannot assemble
			}
			if os.Getenv("FENTRY_WIDE") == "" && m.cc != "gcc" && !strings.HasPrefix(m.cc, "mips") && level != "-O2" {
				continue
			}
			t.Run(m.cc+" "+m.flags+" "+level, func(t *testing.T) {
				t.Parallel()
				need(t, m.cc)
				more := wideSources(t, m.cc, level)
				for _, src := range slices.Concat(files, more) {
					obj := filepath.Join(t.TempDir(), "x.o")
					argv := append([]string{m.cc, "-std=gnu11", "-w", "-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3", "-I", include}, strings.Fields(m.flags+" "+level)...)
					out, err := exec.Command(argv[0], append(argv[1:], "-c", src, "-o", obj)...).CombinedOutput()
					if bytes.Contains(out, []byte("No such file or directory")) {
						t.Skipf("no C library for %s: apt-get install libc6-dev-*-cross", m.cc)
					}
					if err != nil {
						t.Fatalf("%v: %s", err, out)
					}
					compare(t, tool, obj)
				}
			})
		}
	}
}

func compare(t *testing.T, tool, path string) {
	t.Helper()
	orig := read(t, path)
	ours := record(t, orig, objects.Options{})
	compat := record(t, orig, objects.Options{Compat: true})
	err := exec.Command(tool, path).Run()
	theirs := read(t, path)

	all := sites(t, orig, objects.Options{})
	for _, s := range all {
		if s.Form == objects.FormAddress {
			t.Errorf("%s: address taken at %#x", path, s.Off)
		}
	}
	ob, perr := objects.Parse(ours, objects.Options{})
	if perr != nil {
		t.Fatal(perr)
	}
	n := 0
	for range ob.Entries() {
		n++
	}
	if n != len(all) {
		t.Errorf("%d entries for %d sites", n, len(all))
	}
	if err != nil {
		return // it does not know the machine, or finds no symbol for a section
	}
	tob, perr := objects.Parse(theirs, objects.Options{})
	if perr != nil {
		t.Fatal(perr)
	}
	have := map[string]bool{}
	count := 0
	for sec, off := range tob.Entries() {
		have[fmt.Sprint(sec, off)] = true
		count++
	}
	equal := count == len(all)
	explained := 0
	last := map[int]uint64{}
	var before uint64
	for _, s := range all {
		is := func(off uint64) bool { return have[fmt.Sprint(s.Section, off)] }
		switch {
		case is(s.Off):
		case s.Form == objects.FormGOT && s.Len == 6 && is(s.Off+1), s.Form == objects.FormRegister && is(s.Off+1):
			equal, explained = false, explained+1 // inside the instruction
		case s.Len == 18 && is(s.Off-6), s.Len == 6 && is(s.Off-12):
			equal, explained = false, explained+1 // s390x, 14 bytes in front of the relocation
		case s.Form == objects.FormGOT && s.Len == 8 && last[s.Section] == 0 && s.Reloc == before+8:
			equal, explained = false, explained+1 // MIPS: taken for the second half of a call in the section before
		case s.Form == objects.FormGOT && s.Len == 8 && s.Reloc == before+4:
			equal, explained = false, explained+1
		default:
			equal = false
			t.Errorf("%s: recordmcount has no entry for the site %+v", path, s)
		}
		last[s.Section], before = s.Off, s.Reloc
		if s.Form == objects.FormGOT && s.Len == 8 {
			before = s.Reloc + 4 // of the jalr
		}
	}
	if equal && explained == 0 && !bytes.Equal(compat, theirs) {
		t.Errorf("%s: the file differs from recordmcount's", path)
	}
}
