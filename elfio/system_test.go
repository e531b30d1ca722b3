package elfio

import (
	"bytes"
	"debug/elf"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// systemDirs hold the ELF files of the machine.
var systemDirs = []string{"/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/lib64", "/lib", "/lib64", "/usr/local", "/usr/aarch64-linux-gnu", "/usr/i686-linux-gnu"}

// systemFiles calls visit for every ELF file of the machine, memory-mapped, on several goroutines. It
// stops after the time limit; FENTRY_WIDE=1 lifts that.
func systemFiles(t *testing.T, limit time.Duration, visit func(path string, raw []byte)) (n int) {
	t.Helper()
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	deadline := time.Now().Add(limit)
	if testtool.Wide() {
		deadline = time.Now().Add(24 * time.Hour)
	}
	paths := make(chan string, 64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for p := range paths {
				visitFile(p, visit)
			}
		})
	}
	for _, dir := range systemDirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if time.Now().After(deadline) {
				return filepath.SkipAll
			}
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil || seen[inode{st.Dev, st.Ino}] || st.Size < 52 {
				return nil
			}
			seen[inode{st.Dev, st.Ino}] = true
			if isELF(path) {
				n++
				paths <- path
			}
			return nil
		})
	}
	close(paths)
	wg.Wait()
	if time.Now().After(deadline) {
		t.Logf("stopped after %v", limit)
	}
	return n
}

func isELF(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var b [4]byte
	_, err = f.Read(b[:])
	return err == nil && string(b[:]) == elf.ELFMAG
}

func visitFile(path string, visit func(path string, raw []byte)) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return
	}
	raw, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return
	}
	visit(path, raw)
	_ = unix.Munmap(raw)
}

// Every ELF file of the machine is parsed, agrees with debug/elf and is encoded back to what it was.
func TestSystemRoundTrip(t *testing.T) {
	n := systemFiles(t, 8*time.Second, func(path string, raw []byte) {
		f, err := Parse(raw)
		if err != nil {
			// Not every file that starts like one is a valid ELF file, but then others agree.
			if want, err2 := elf.NewFile(bytes.NewReader(raw)); err2 == nil && len(want.Sections) > 0 {
				t.Errorf("%s: %v", path, err)
			}
			return
		}
		edits, err := f.HeaderEdits()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		for _, e := range edits {
			if !bytes.Equal(raw[e.Off:e.Off+uint64(len(e.New))], e.New) {
				t.Errorf("%s: headers at %#x differ: % x, was % x", path, e.Off, e.New, raw[e.Off:e.Off+uint64(len(e.New))])
			}
		}
		for name, read := range map[string]func() error{
			"symbols":             func() error { _, err := f.Symbols(); return err },
			"dynamic symbols":     func() error { _, err := f.DynamicSymbols(); return err },
			"dynamic relocations": func() error { _, err := f.DynamicRelocs(); return err },
			"notes":               func() error { _, err := f.Notes(); return err },
			"FDEs": func() error {
				if f.Header.Type == elf.ET_REL {
					return nil
				}
				_, err := f.FDEs()
				return err
			},
		} {
			if err := read(); err != nil {
				t.Errorf("%s: %s: %v", path, name, err)
			}
		}
	})
	t.Logf("%d files", n)
	if n == 0 {
		t.Skip("no ELF files on this machine")
	}
}

// Every program and shared object of the machine takes an injection and gives it back.
func TestSystemInject(t *testing.T) {
	var mu sync.Mutex
	slots := map[string]int{}
	refused := map[string]int{}
	n := systemFiles(t, 8*time.Second, func(path string, raw []byte) {
		f, err := Parse(raw)
		if err != nil || f.Header.Type != elf.ET_EXEC && f.Header.Type != elf.ET_DYN || len(raw) > 32<<20 {
			return
		}
		l, err := f.Layout(0x1000, 64)
		if err != nil {
			reason := "separate debug file"
			if !strings.Contains(err.Error(), reason) {
				reason = "other"
				// Debian's arch-test has a handful of instructions as a program: nothing in its file can go.
				if !strings.Contains(path, "testdata") && !strings.Contains(path, "/arch-test/") {
					t.Errorf("%s: %v", path, err)
				}
			}
			mu.Lock()
			refused[reason]++
			mu.Unlock()
			return
		}
		mu.Lock()
		slots[l.Slot]++
		mu.Unlock()
		rx := bytes.Repeat([]byte{0xcc}, 100)
		in := Injection{Layout: l, RX: rx, Symbols: []AddedSymbol{{Name: "fentry:x", Value: l.RX, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}}}
		out, err := f.Inject(in)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		if err := checkInjected(f, out, l, rx); err != "" {
			t.Errorf("%s (%s): %s", path, l.Slot, err)
		}
		back, err := Uninject(out)
		if err != nil || !bytes.Equal(back, raw) {
			t.Errorf("%s: Uninject does not give the original: %v", path, err)
		}
	})
	t.Logf("%d files; slots %v; refused %v", n, slots, refused)
}

// Programs of the machine run injected as they do untouched.
func TestSystemRun(t *testing.T) {
	for _, c := range [][]string{
		{"ls", "-la", "/usr"}, {"bash", "-c", "for i in 1 2 3; do echo $((i*i)); done | sort -r"}, {"sort", "--version"}, {"sed", "--version"},
		{"grep", "-c", "root", "/etc/passwd"}, {"awk", "BEGIN { print sqrt(2) }"}, {"perl", "-e", "print join ',', map { $_ ** 2 } 1 .. 9"},
		{"/usr/bin/python3", "-c", "import json, hashlib, re, math; print(json.dumps({'a': math.pi}), hashlib.sha256(b'x').hexdigest())"},
		{"git", "--version"}, {"gcc", "--version"}, {"clang", "--version"}, {"ld.bfd", "--version"}, {"ld.gold", "--version"}, {"ld.lld", "--version"},
		{"as", "--version"}, {"objdump", "-h", "/bin/true"}, {"readelf", "-h", "/bin/true"}, {"eu-readelf", "-h", "/bin/true"},
		{"gdb", "-nx", "-batch", "-ex", "print 6*7"}, {"make", "--version"}, {"tar", "--version"}, {"gzip", "--version"}, {"xz", "--version"},
		{"openssl", "version"}, {"curl", "--version"}, {"ssh", "-V"}, {"find", "/etc/passwd", "-ls"}, {"diff", "--version"}, {"sqlite3", ":memory:", "select 6*7"},
		{"node", "-e", "console.log(6*7)"}, {"qemu-x86_64", "--version"}, {"patchelf", "--version"}, {"cmake", "--version"}, {"ldconfig", "-V"}, {"go", "version"},
	} {
		t.Run(filepath.Base(c[0]), func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(c[0])
			if err != nil {
				t.Skipf("%s is missing", c[0])
			}
			if path, err = filepath.EvalSymlinks(path); err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if f, err := Parse(raw); err != nil || f.Header.Machine != elf.EM_X86_64 {
				t.Skipf("%s is no x86-64 program", path)
			}
			// Both run from the same path, which some programs print.
			name := filepath.Join(t.TempDir(), filepath.Base(c[0]))
			start := func(raw []byte) (string, int) {
				if err := runfile.WriteFile(name, raw); err != nil {
					t.Fatal(err)
				}
				return run(append([]string{name}, c[1:]...))
			}
			want, wantCode := start(raw)
			got, gotCode := start(injectTrampoline(t, raw))
			if got != want || gotCode != wantCode {
				t.Errorf("exit status %d, output %q; untouched: %d, %q", gotCode, got, wantCode, want)
			}
		})
	}
}

// checkInjected compares an injected image with the original through the package's own reader and debug/elf.
func checkInjected(f *File, out []byte, l Layout, rx []byte) string {
	g, err := Parse(out)
	if err != nil {
		return err.Error()
	}
	if _, err := elf.NewFile(bytes.NewReader(out)); err != nil {
		if _, err2 := elf.NewFile(bytes.NewReader(f.raw)); err2 == nil {
			return "debug/elf: " + err.Error()
		}
	}
	if b, err := g.Bytes(l.RX, len(rx)); err != nil || !bytes.Equal(b, rx) {
		return "RX is not at its address"
	}
	if l.RXOff != l.SegmentOff+(l.RX-l.Segment) {
		return "offset of RX does not fit its address"
	}
	if p, ok := g.load(l.RW); !ok || p.Flags&elf.PF_W == 0 || l.RW+l.RWSize > p.Vaddr+p.Memsz || l.RW < p.Vaddr+p.Filesz {
		return "RW is not writable zeroed memory"
	}
	// What was loaded is still loaded with the same bytes, except where a header changed or moved.
	for _, p := range f.loads {
		for _, at := range []uint64{p.Vaddr + p.Filesz/2, p.Vaddr + p.Filesz - 1} {
			if p.Filesz == 0 {
				continue
			}
			was, off := f.from(at)
			is, _ := g.from(at)
			if off >= f.tableEnd()+1024 && (len(is) == 0 || was[0] != is[0]) {
				return "a loaded byte changed"
			}
		}
	}
	last := uint64(0)
	for _, p := range g.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if p.Align > 1 && (p.Vaddr-p.Off)%p.Align != 0 {
			return "a segment's offset is not congruent to its address"
		}
		if p.Vaddr < last && sortedLoads(f) {
			return "segments are not ascending"
		}
		last = p.Vaddr
	}
	if len(f.Sections) == 0 {
		if len(g.Sections) != 0 {
			return "sections appeared"
		}
		return ""
	}
	was, err := f.DynamicSymbols()
	if err != nil {
		return err.Error()
	}
	is, err := g.DynamicSymbols()
	if err != nil {
		return err.Error()
	}
	if msg := sameSymbols(f, g, was, is); msg != "" {
		return "dynamic symbols: " + msg
	}
	if was, err = f.Symbols(); err != nil {
		return err.Error()
	}
	if is, err = g.Symbols(); err != nil {
		return err.Error()
	}
	var kept []Symbol
	for _, s := range is {
		if !strings.HasPrefix(s.Name, "fentry:") {
			kept = append(kept, s)
		}
	}
	if msg := sameSymbols(f, g, was, kept); msg != "" {
		return "symbols: " + msg
	}
	return ""
}

func sortedLoads(f *File) bool {
	last := uint64(0)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			if p.Vaddr < last {
				return false
			}
			last = p.Vaddr
		}
	}
	return true
}

// sameSymbols compares symbols by name, value and the name of their section.
func sameSymbols(f, g *File, was, is []Symbol) string {
	if len(was) != len(is) {
		return "number changed"
	}
	for i, a := range was {
		b := is[i]
		if a.Name != b.Name || a.Size != b.Size || a.Info != b.Info || a.Other != b.Other {
			return a.Name + " changed"
		}
		if a.reserved() || b.reserved() || a.Section >= uint32(len(f.Sections)) {
			if a.Section != b.Section {
				return a.Name + " changed its section"
			}
			continue
		}
		sa, sb := f.Sections[a.Section], g.Sections[b.Section]
		if sa.Name != sb.Name {
			return a.Name + " is in another section"
		}
		if a.Value-sa.Addr != b.Value-sb.Addr && a.Value != b.Value {
			return a.Name + " changed its value"
		}
	}
	return ""
}
