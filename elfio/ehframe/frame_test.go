package ehframe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

var amd64Names = append(strings.Fields("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15"), "ra")

// readelfRule is a rule as readelf writes it.
func readelfRule(r Rule) string {
	switch r.Kind {
	case RuleSame:
		return "s"
	case RuleOffset:
		return fmt.Sprintf("c%+d", r.Off)
	case RuleValOffset:
		return fmt.Sprintf("v%+d", r.Off)
	case RuleRegister:
		return amd64Names[r.Reg]
	case RuleExpr:
		return "exp"
	case RuleValExpr:
		return "vexp"
	}
	return "u"
}

func readelfCFA(r Rule) string {
	if r.Kind == RuleValExpr {
		return "exp"
	}
	return fmt.Sprintf("%s%+d", amd64Names[r.Reg], r.Off)
}

// TestFramesAsReadelf compares every column of every row of some programs and libraries with what readelf prints.
func TestFramesAsReadelf(t *testing.T) {
	testtool.Need(t, "readelf")
	seen := 0
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2", "/bin/bash", "/usr/bin/perl",
		"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"} {
		n, err := compareFrames(t, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		t.Logf("%s: %d rows", path, n)
		seen += n
	}
	if seen < 1000 {
		t.Skipf("only %d rows: the libraries of x86-64 are not installed", seen)
	}
}

func compareFrames(t *testing.T, path string) (seen int, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	f, err := elfio.Parse(b)
	if err != nil {
		return 0, err
	}
	table, err := Read(f)
	if err != nil {
		return 0, err
	}
	index := NewIndex(table)
	cmd := exec.Command("readelf", "--debug-dump=frames-interp,no-follow-links", "--wide", path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	var d FDE
	var columns []int
	entry := false
	for sc := bufio.NewScanner(out); sc.Scan(); {
		line := sc.Text()
		words := strings.Fields(line)
		switch {
		case strings.Contains(line, " CIE "):
			entry = false
		case strings.Contains(line, " FDE "):
			_, rest, _ := strings.Cut(line, "pc=")
			pc, err := strconv.ParseUint(rest[:16], 16, 64)
			if err != nil {
				return seen, fmt.Errorf("%q: %w", line, err)
			}
			d, entry = index.Find(pc)
		case entry && len(words) > 1 && words[0] == "LOC":
			columns = columns[:0]
			for _, name := range words[2:] {
				columns = append(columns, slices.Index(amd64Names, name))
			}
		case entry && len(words) == 2+len(columns) && len(words[0]) == 16:
			at, err := strconv.ParseUint(words[0], 16, 64)
			if err != nil {
				return seen, err
			}
			row, err := d.FrameAt(at)
			if err != nil {
				return seen, err
			}
			got := []string{words[0], readelfCFA(row.CFA)}
			for _, c := range columns {
				got = append(got, readelfRule(row.Reg[c]))
			}
			if !slices.Equal(got, words) {
				return seen, fmt.Errorf("%v: %q, readelf says %q", d, got, words)
			}
			seen++
		}
	}
	return seen, nil
}

// memoryOf is the memory that a file's segments are.
func memoryOf(f *elfio.File) Memory {
	return func(addr uint64, n int) ([]byte, error) {
		b, _ := f.From(addr)
		if len(b) < n {
			return nil, fmt.Errorf("%#x+%d is not there", addr, n)
		}
		return b[:n], nil
	}
}

// TestSearch finds in memory what is in the file.
func TestSearch(t *testing.T) {
	path := "/proc/self/exe"
	for _, p := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6"} {
		if _, err := os.Stat(p); err == nil {
			path = p
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elfio.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	header := searchTable(f)
	if header == 0 {
		t.Skipf("%s has no search table", path)
	}
	table, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	index := NewIndex(table)
	found := 0
	for d := range table.All() {
		for _, pc := range []uint64{d.PC, d.PC + d.Size - 1, d.PC + d.Size, d.PC - 1} {
			got, ok, err := Search(memoryOf(f), header, pc)
			want, there := index.Find(pc)
			if err != nil || ok != there || ok && (got.PC != want.PC || got.Size != want.Size ||
				string(got.Instructions) != string(want.Instructions)) {
				t.Fatalf("%#x: %v %v %v, want %v %v", pc, got, ok, err, want, there)
			}
			if ok {
				found++
			}
		}
	}
	if found < 1000 {
		t.Errorf("%d entries", found)
	}
}

// searchTable is the address of a file's search table.
func searchTable(f *elfio.File) uint64 {
	for _, p := range f.Progs {
		if p.Type == 0x6474e550 && p.Filesz > 0 { // PT_GNU_EH_FRAME
			return p.Vaddr
		}
	}
	return 0
}

func FuzzSearch(f *testing.F) {
	const header = 0x1000
	le := binary.LittleEndian
	var b []byte
	b = append(b, 1, encPCRel|encSdata4, encUdata4, encDataRel|encSdata4, 0, 0, 0, 0)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(le.AppendUint32(b, 0x1000), 36)                        // pc, FDE
	b = append(b, 12, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0x78, 16, cfaDefCFA, 7, 8) // CIE at 20
	b = append(le.AppendUint32(le.AppendUint32(b, 24), 20), make([]byte, 20)...)
	le.PutUint64(b[44:], header+0x1000)
	le.PutUint64(b[52:], 0x10)
	f.Add(b, uint64(header+0x1000))
	f.Fuzz(func(t *testing.T, b []byte, pc uint64) {
		mem := func(addr uint64, n int) ([]byte, error) {
			if addr < header || addr-header > uint64(len(b)) || uint64(n) > uint64(len(b))-(addr-header) {
				return nil, fs.ErrNotExist
			}
			return b[addr-header:][:n], nil
		}
		d, ok, err := Search(mem, header, pc)
		if !ok || err != nil {
			return
		}
		if pc-d.PC >= d.Size {
			t.Errorf("%v for %#x", d, pc)
		}
		_, _ = d.FrameAt(pc)
	})
}
