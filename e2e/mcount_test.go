package e2e

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/e2e/corpus"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// mcountSources are the C files of a program of the corpus, and flags for the compiler.
func mcountSources(t *testing.T, name corpus.Name) (files, flags []string) {
	t.Helper()
	b, err := corpus.Build(context.Background(), name, corpus.Flags{C: []string{"-O2", "-pg", "-mfentry"}})
	var missing *corpus.Missing
	if errors.As(err, &missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cache, err := corpus.Dir()
	if err != nil {
		t.Fatal(err)
	}
	glob := func(patterns ...string) (out []string) {
		for _, p := range patterns {
			found, err := filepath.Glob(filepath.Join(cache, p))
			if err != nil || len(found) == 0 {
				t.Fatalf("%s: %d files, %v", p, len(found), err)
			}
			out = append(out, found...)
		}
		return out
	}
	switch name {
	case corpus.Lua:
		files = slices.DeleteFunc(glob("source/lua5.4/src/*.c"), func(f string) bool { return filepath.Base(f) == "luac.c" })
		// Two runs make the same calls only if no hash depends on an address: neither the seed nor the cache of C strings.
		flags = []string{"-std=gnu11", "-DLUA_USE_POSIX", "-DLUA_COMPAT_5_3", "-Dluai_makeseed(L)=42u",
			"-DSTRCACHE_N=1", "-DSTRCACHE_M=2", "-I", b.Dir}
	case corpus.Zstd:
		files = glob("source/libzstd/lib/common/*.c", "source/libzstd/lib/compress/*.c", "source/libzstd/lib/decompress/*.c",
			"source/libzstd/lib/dictBuilder/*.c", "source/libzstd/programs/*.c")
		lib := filepath.Join(cache, "source/libzstd/lib")
		flags = []string{"-DZSTD_LEGACY_SUPPORT=0", "-DZSTD_DISABLE_ASM", "-DBACKTRACE_ENABLE=0", "-DXXH_NAMESPACE=ZSTD_", "-DZSTD_MULTITHREAD", "-DDEBUGLEVEL=0",
			"-I", lib, "-I", filepath.Join(lib, "common"), "-I", filepath.Join(lib, "dictBuilder")}
	case corpus.SQLite:
		files = glob("built/sqlite-amalgamation/sqlite3.c", "built/sqlite-amalgamation/shell.c")
		flags = []string{"-DSQLITE_THREADSAFE=1", "-DSQLITE_OMIT_LOAD_EXTENSION", "-I", filepath.Join(cache, "built/sqlite-amalgamation")}
	}
	return files, flags
}

// callCounts reads what testdata/countcalls.c has written: calls by function.
func callCounts(t *testing.T, path, program string) (counts map[string]int64, sites int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	var start uint64
	var syms []elf.Symbol
	for _, s := range all {
		if s.Name == "__executable_start" {
			start = s.Value
		}
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
			syms = append(syms, s)
		}
	}
	sort.Slice(syms, func(i, j int) bool { return syms[i].Value < syms[j].Value })
	counts = map[string]int64{}
	for ; len(b) >= 16; b = b[16:] {
		a := start + binary.LittleEndian.Uint64(b) - 1
		i := sort.Search(len(syms), func(i int) bool { return syms[i].Value > a }) - 1
		if i < 0 || a >= syms[i].Value+syms[i].Size {
			t.Fatalf("a call at %#x, in no function", a)
		}
		counts[functionName(syms[i].Name)] += int64(binary.LittleEndian.Uint64(b[8:]))
		sites++
	}
	return counts, sites
}

// TestRecordedObjects compiles real programs, adds tables to their objects, links half of them into one with ld -r, then all with
// one linker after another, turns all sites on with fentry patch, and compares the calls with what __fentry__ itself has counted.
func TestRecordedObjects(t *testing.T) {
	testtool.Long(t)
	needFentry(t)
	for _, tt := range []struct {
		name corpus.Name
		ld   string
		link []string
		job  func(dir string) job
	}{
		{corpus.Lua, "bfd", []string{"-Wl,-E", "-lm"}, func(string) job {
			scripts, _ := filepath.Glob("testdata/lua/*.lua")
			return job{args: []string{mustAbs(t, scripts[0])}}
		}},
		{corpus.Lua, "mold", []string{"-Wl,-E", "-lm", "-no-pie"}, func(string) job {
			return job{args: []string{"-e", "for i = 1, 1000 do print(i, ('x'):rep(i % 7)) end"}}
		}},
		{corpus.Zstd, "lld", []string{"-pthread"}, func(dir string) job {
			if err := os.WriteFile(filepath.Join(dir, "in"), sampleData(100_000), 0o644); err != nil {
				t.Fatal(err)
			}
			return job{args: []string{"-q", "-3", "--single-thread", "-c", "in"}, dir: dir}
		}},
		{corpus.SQLite, "gold", []string{"-lm", "-pthread", "-Wl,--gc-sections"}, func(string) job {
			return job{args: []string{":memory:"}, stdin: corpus.SQLScript(2000)}
		}},
	} {
		t.Run(string(tt.name)+" "+tt.ld, func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, "gcc", "ld."+tt.ld)
			files, flags := mcountSources(t, tt.name)
			dir := t.TempDir()
			mode := "-fPIE"
			if slices.Contains(tt.link, "-no-pie") {
				mode = "-fno-pie"
			}
			flags = append(flags, "-w", "-O1", mode)
			var objs []string
			for i, f := range files {
				obj := filepath.Join(dir, strings.TrimSuffix(filepath.Base(f), ".c")+".o")
				argv := append(append([]string{"gcc"}, flags...), "-pg", "-mfentry", "-c", f, "-o", obj)
				if i%2 == 1 {
					argv = append(argv, "-ffunction-sections")
				}
				run(t, command{argv: argv}).mustSucceed(t)
				objs = append(objs, obj)
			}
			counter := filepath.Join(dir, "countcalls.o")
			run(t, command{argv: append(append([]string{"gcc"}, flags...), "-c", mustAbs(t, "testdata/countcalls.c"), "-o", counter)}).mustSucceed(t)
			run(t, command{argv: append([]string{fentry, "mcount"}, objs...)}).mustSucceed(t)
			run(t, command{argv: append([]string{fentry, "mcount", "--check"}, objs...)}).mustSucceed(t)
			half := filepath.Join(dir, "half.o")
			run(t, command{argv: append([]string{"gcc", "-fuse-ld=" + tt.ld, "-r", "-nostdlib", "-o", half}, objs[:len(objs)/2]...)}).mustSucceed(t)
			prog := filepath.Join(dir, "prog")
			link := slices.Concat([]string{"gcc", "-fuse-ld=" + tt.ld, "-o", prog, half, counter}, objs[len(objs)/2:], tt.link)
			run(t, command{argv: link}).mustSucceed(t)

			j := tt.job(t.TempDir())
			j.program = prog
			calls := filepath.Join(dir, "calls")
			want := run(t, command{dir: j.dir, stdin: j.stdin, timeout: j.timeout, argv: append([]string{prog}, j.args...), env: []string{"COUNT_CALLS=" + calls}})
			truth, sites := callCounts(t, calls, prog)
			if sites < 100 {
				t.Fatalf("%d sites called", sites)
			}
			data := filepath.Join(t.TempDir(), "data")
			got, patched := runJobFile(t, j, byPatching, data)
			if got.status != want.status || got.stdout != want.stdout {
				t.Errorf("traced: %s, untraced: %s; %d and %d bytes of output", got.status, want.status, len(got.stdout), len(want.stdout))
			}
			tr := decodeTrace(t, data, patched...)
			have := map[string]int64{}
			for fn, n := range tr.entries {
				have[functionName(fn.name)] += n
			}
			var total int64
			for name, n := range truth {
				if total += n; have[name] != n {
					t.Errorf("calls of %s: trace %d, __fentry__ counted %d (%s)", name, have[name], n, tr.untraced[name])
				}
				delete(have, name)
			}
			if len(have) > 0 || tr.lost != 0 {
				t.Errorf("%d events lost; calls that __fentry__ has not seen: %v", tr.lost, have)
			}
			t.Logf("%d calls from %d sites", total, sites)
		})
	}
}
