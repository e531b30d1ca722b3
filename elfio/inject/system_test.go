package inject

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/runfile"
)

// Every program and shared object of the machine takes an injection and gives it back.
func TestSystemInject(t *testing.T) {
	var mu sync.Mutex
	slots := map[string]int{}
	refused := map[string]int{}
	n := elftest.SystemFiles(t, 8*time.Second, func(path string, raw []byte) {
		f, err := elfio.Parse(raw)
		if err != nil || f.Header.Type != elf.ET_EXEC && f.Header.Type != elf.ET_DYN || len(raw) > 32<<20 {
			return
		}
		if f.Header.Machine == elf.EM_NONE {
			return // Guile's bytecode is in ELF files, too
		}
		l, err := NewLayout(f, Memory{RW: 0x1000, RWAlign: 64})
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
		in := Injection{Layout: l, RX: rx, Symbols: []Symbol{{Name: "fentry:x", Value: l.RX,
			Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}}}
		out, err := injected(f, in)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		if err := checkInjected(f, out, l, rx); err != "" {
			t.Errorf("%s (%s): %s", path, l.Slot, err)
		}
		back, err := Undo(out)
		if err != nil || !bytes.Equal(back, raw) {
			t.Errorf("%s: Undo does not give the original: %v", path, err)
		}
	})
	t.Logf("%d files; slots %v; refused %v", n, slots, refused)
}

// Programs of the machine run injected as they do untouched.
func TestSystemRun(t *testing.T) {
	for _, c := range [][]string{
		{"ls", "-la", "/usr"}, {"bash", "-c", "for i in 1 2 3; do echo $((i*i)); done | sort -r"}, {"sort",
			"--version"}, {"sed", "--version"},
		{"grep", "-c", "root", "/etc/passwd"}, {"awk", "BEGIN { print sqrt(2) }"}, {"perl", "-e",
			"print join ',', map { $_ ** 2 } 1 .. 9"},
		{"/usr/bin/python3", "-c", "import json, hashlib, re, math; print(json.dumps({'a': math.pi}), hashlib.sha256(b'x').hexdigest())"},
		{"git", "--version"}, {"gcc", "--version"}, {"clang", "--version"}, {"ld.bfd", "--version"}, {"ld.gold",
			"--version"}, {"ld.lld", "--version"},
		{"as", "--version"}, {"objdump", "-h", "/bin/true"}, {"readelf", "-h", "/bin/true"}, {"eu-readelf", "-h",
			"/bin/true"},
		{"gdb", "-nx", "-batch", "-ex", "print 6*7"}, {"make", "--version"}, {"tar", "--version"}, {"gzip",
			"--version"}, {"xz", "--version"},
		{"openssl", "version"}, {"curl", "--version"}, {"ssh", "-V"}, {"find", "/etc/passwd", "-ls"}, {"diff",
			"--version"}, {"sqlite3", ":memory:", "select 6*7"},
		{"node", "-e", "console.log(6*7)"}, {"qemu-x86_64", "--version"}, {"patchelf", "--version"}, {"cmake",
			"--version"}, {"ldconfig", "-V"}, {"go", "version"},
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
			if f, err := elfio.Parse(raw); err != nil || f.Header.Machine != elf.EM_X86_64 {
				t.Skipf("%s is no x86-64 program", path)
			}
			// Both run from the same path, which some programs print.
			name := filepath.Join(t.TempDir(), filepath.Base(c[0]))
			start := func(raw []byte) (string, int) {
				if err := runfile.WriteFile(name, raw); err != nil {
					t.Fatal(err)
				}
				return elftest.Run(append([]string{name}, c[1:]...))
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
func checkInjected(f *elfio.File, out []byte, l Layout, rx []byte) string {
	g, err := elfio.Parse(out)
	if err != nil {
		return err.Error()
	}
	if _, err := elf.NewFile(bytes.NewReader(out)); err != nil {
		if _, err2 := elf.NewFile(bytes.NewReader(f.Raw())); err2 == nil {
			return "debug/elf: " + err.Error()
		}
	}
	if b, err := g.Bytes(l.RX, len(rx)); err != nil || !bytes.Equal(b, rx) {
		return "RX is not at its address"
	}
	if l.RXOff != l.SegmentOff+(l.RX-l.Segment) {
		return "offset of RX does not fit its address"
	}
	if p, ok := newImage(g).load(l.RW); !ok || p.Flags&elf.PF_W == 0 || l.RW+l.RWSize > p.Vaddr+p.Memsz ||
		l.RW < p.Vaddr+p.Filesz {
		return "RW is not writable zeroed memory"
	}
	// What was loaded is still loaded with the same bytes, except where a header changed or moved.
	for _, p := range newImage(f).loads {
		for _, at := range []uint64{p.Vaddr + p.Filesz/2, p.Vaddr + p.Filesz - 1} {
			if p.Filesz == 0 {
				continue
			}
			was, off := f.From(at)
			is, _ := g.From(at)
			if off >= newImage(f).tableEnd()+1024 && (len(is) == 0 || was[0] != is[0]) {
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
	var kept []elfio.Symbol
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

func sortedLoads(f *elfio.File) bool {
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
func sameSymbols(f, g *elfio.File, was, is []elfio.Symbol) string {
	if len(was) != len(is) {
		return "number changed"
	}
	for i, a := range was {
		b := is[i]
		if a.Name != b.Name || a.Size != b.Size || a.Info != b.Info || a.Other != b.Other {
			return a.Name + " changed"
		}
		if a.Reserved() || b.Reserved() || a.Section >= uint32(len(f.Sections)) {
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
