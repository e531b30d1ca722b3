package ehframe

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/testtool"
)

var amd64CIE = &CIE{CodeAlign: 1, DataAlign: -8, RetReg: 16, Instructions: []byte{cfaDefCFA, 7, 8, cfaOffset | 16, 1}}

func TestRows(t *testing.T) {
	long := func(op byte, v uint32) []byte { return binary.LittleEndian.AppendUint32([]byte{op}, v) }
	for _, tt := range []struct {
		name string
		code []byte
		want string // rows, or part of the error
	}{
		{"nothing", nil, "0:7+8"},
		{"push and pop", []byte{cfaAdvance | 1, cfaDefOff, 16, cfaOffset | 3, 2, cfaAdvance | 9, cfaDefOff, 8}, "0:7+8 1:7+16 10:7+8"},
		{"frame pointer", []byte{cfaAdvance1, 4, cfaDefReg, 6, cfaAdvance2, 0, 1, cfaDefCFA, 7, 8}, "0:7+8 4:6+8 260:7+8"},
		{"remembered", []byte{cfaAdvance | 1, cfaDefOff, 16, cfaRemember, cfaAdvance | 1, cfaDefOff, 8, cfaAdvance | 1, cfaRestoreAll},
			"0:7+8 1:7+16 2:7+8 3:7+16"},
		{"far", append(long(cfaAdvance4, 0x800), cfaDefOff, 24), "0:7+8 2048:7+24"},
		{"expression", []byte{cfaAdvance | 2, cfaDefExpr, 2, 0x77, 8, cfaNop}, "0:7+8 2:expression"},
		{"signed", []byte{cfaDefCFASf, 6, 0x7e, cfaAdvance | 1, cfaDefOffSf, 0x7d}, "0:6+16 1:6+24"},
		{"return address elsewhere", []byte{cfaAdvance | 1, cfaOffset | 16, 3, cfaAdvance | 1, cfaRestore | 16}, "0:7+8 1:7+8 moved to -24 2:7+8"},
		{"return address signed", []byte{cfaAdvance | 4, cfaNegateRA, cfaRemember, cfaAdvance | 4, cfaNegateRA, cfaAdvance | 4, cfaRestoreAll},
			"0:7+8 4:7+8 signed 8:7+8 12:7+8 signed"},
		{"no return address", []byte{cfaUndefined, 16}, "0:7+8 moved"},
		{"other registers", []byte{cfaRegister, 3, 12, cfaSameValue, 3, cfaExpression, 6, 1, 0x96, cfaValExpr, 6, 0, cfaGNUArgs, 16,
			cfaOffsetExt, 3, 2, cfaOffsetSf, 3, 2, cfaValOffset, 3, 1, cfaValOffSf, 3, 1, cfaGNUNegOff, 3, 1, cfaRestoreExt, 3}, "0:7+8"},
		{"behind the end", long(cfaAdvance4, 0x1001), "behind its 4096 bytes"},
		{"a location", []byte{cfaSetLoc, 0, 0, 0, 0, 0, 0, 0, 0}, "instruction 0x1"},
		{"unknown", []byte{0x3f}, "instruction 0x3f"},
		{"cut off", []byte{cfaDefCFA, 7}, "instruction 0xc"},
		{"expression cut off", []byte{cfaDefExpr, 9, 1}, "instruction 0xf"},
		{"restored, but not remembered", []byte{cfaRestoreAll}, "instruction 0xb"},
		{"remembered too often", []byte(strings.Repeat("\x0a", maxStates+1)), "instruction 0xa"},
	} {
		d := FDE{PC: 0x1000, Size: 0x1000, CIE: amd64CIE, Instructions: tt.code}
		rows, err := d.AppendRows(nil)
		got := rowsText(rows)
		if err != nil {
			got = err.Error()
			if strings.Contains(got, tt.want) {
				continue
			}
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func rowsText(rows []Row) string {
	var out []string
	for _, r := range rows {
		s := fmt.Sprintf("%d:%d+%d", r.At, r.Reg, r.Off)
		if r.Reg == RegExpr {
			s = fmt.Sprintf("%d:expression", r.At)
		}
		if r.Moved {
			s += " moved"
			if r.Saved {
				s += fmt.Sprintf(" to %d", r.Ret)
			}
		}
		if r.Signed {
			s += " signed"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// A copy of the first bytes has their rows, where its instructions are.
func TestMovedRows(t *testing.T) {
	// Three instructions of 2, 3 and 4 bytes, of which the first takes 6 in the copy.
	place := func(at uint64) (uint64, bool) {
		n, ok := map[uint64]uint64{0: 0, 2: 6, 5: 9, 9: 13}[at]
		return n, ok
	}
	code := []byte{cfaAdvance | 2, cfaDefOff, 16, cfaOffset | 3, 2, cfaAdvance1, 3, cfaDefReg, 6, cfaAdvance | 4, cfaDefOff, 24,
		cfaAdvance | 1, cfaDefOff, 32}
	d := FDE{PC: 0x1000, Size: 0x1000, CIE: amd64CIE, Instructions: code}
	for end, want := range map[uint64]string{
		1: "0:7+8", 2: "0:7+8 6:7+16", 5: "0:7+8 6:7+16 9:6+16", 9: "0:7+8 6:7+16 9:6+16 13:6+24",
	} {
		b, err := d.AppendMoved(nil, end, place)
		if err != nil {
			t.Fatal(err)
		}
		m := FDE{PC: 0x9000, Size: 0x1000, CIE: amd64CIE, Instructions: b}
		if rows, err := m.AppendRows(nil); err != nil || rowsText(rows) != want {
			t.Errorf("the first %d bytes: %s, %v; want %s", end, rowsText(rows), err, want)
		}
	}
	d.Instructions = []byte{cfaAdvance | 3, cfaDefOff, 16}
	if b, err := d.AppendMoved(nil, 9, place); err == nil {
		t.Errorf("a row in the middle of an instruction: % x", b)
	}
	d.Instructions = []byte{cfaAdvance | 2, 0x3f}
	if b, err := d.AppendMoved(nil, 9, place); err == nil {
		t.Errorf("an unknown instruction: % x", b)
	}
	far := func(at uint64) (uint64, bool) { return at * 100, true }
	d.Instructions = []byte{cfaAdvance | 2, cfaDefOff, 16}
	b, err := d.AppendMoved(nil, 9, far)
	m := FDE{PC: 0x9000, Size: 0x1000, CIE: amd64CIE, Instructions: b}
	if rows, _ := m.AppendRows(nil); err != nil || rowsText(rows) != "0:7+8 200:7+16" {
		t.Errorf("far apart: %s, %v", rowsText(rows), err)
	}
}

// TestRowsAsReadelf compares the rows of all entries of a system library with what readelf prints.
func TestRowsAsReadelf(t *testing.T) {
	testtool.Need(t, "readelf")
	path := "/lib/x86_64-linux-gnu/libc.so.6"
	image, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("%s: %v", path, err)
	}
	f, err := elfio.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	index := NewIndex(table)
	cmd := exec.Command("readelf", "--debug-dump=frames-interp", "--wide", path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	var rows []Row
	var d FDE
	for sc := bufio.NewScanner(out); sc.Scan(); {
		line := sc.Text()
		if _, rest, ok := strings.Cut(line, "pc="); ok && strings.Contains(line, "FDE") {
			pc, err := strconv.ParseUint(rest[:16], 16, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			var found bool
			if d, found = index.Find(pc); !found || d.PC != pc {
				t.Fatalf("no entry at %#x", pc)
			}
			if rows, err = d.AppendRows(rows[:0]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		words := strings.Fields(line)
		if len(words) < 2 || len(words[0]) != 16 || len(rows) == 0 {
			continue
		}
		at, err := strconv.ParseUint(words[0], 16, 64)
		if err != nil || at < d.PC || at-d.PC >= d.Size {
			continue
		}
		k := 0
		for k+1 < len(rows) && rows[k+1].At <= at-d.PC {
			k++
		}
		cfa := "exp"
		if reg := rows[k].Reg; reg != RegExpr {
			names := strings.Fields("rax rdx rcx rbx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15")
			cfa = fmt.Sprintf("%s%+d", names[reg], rows[k].Off)
		}
		if cfa != words[1] {
			t.Fatalf("%v at %#x: %s, readelf says %s", d, at, cfa, words[1])
		}
		seen++
	}
	_ = cmd.Wait() // it fails where a library's debug information is not installed
	if seen < 1000 {
		t.Errorf("only %d rows", seen)
	}
}

func TestIndex(t *testing.T) {
	le := binary.LittleEndian
	b := append(le.AppendUint32(nil, 13), 0, 0, 0, 0, 1, 0, 1, 0x78, 16, cfaDefCFA, 7, 8, 0)
	for _, r := range [][2]uint64{{0x300, 0x10}, {0x100, 0x20}, {0x110, 0x100}, {0x280, 0}} {
		at := len(b)
		b = le.AppendUint32(le.AppendUint32(b, 20), uint32(at+4))
		b = le.AppendUint64(le.AppendUint64(b, r[0]), r[1])
	}
	x, err := Parse(fileOf(t, true, false, nil), b, 0x1000)
	if err != nil {
		t.Fatal(err)
	}
	i := NewIndex(x)
	for pc, want := range map[uint64]uint64{0xff: 0, 0x100: 0x100, 0x10f: 0x100, 0x110: 0x110, 0x20f: 0x110, 0x210: 0, 0x285: 0,
		0x300: 0x300, 0x310: 0} {
		if d, ok := i.Find(pc); ok != (want != 0) || ok && d.PC != want {
			t.Errorf("%#x: %v, %v; want %#x", pc, d, ok, want)
		}
	}
	for _, r := range []struct {
		lo, hi uint64
		want   bool
	}{{0, 0x100, false}, {0, 0x101, true}, {0x101, 0x110, false}, {0x110, 0x111, true}, {0x111, 0x300, false}, {0x301, 0x400, false}} {
		if got := i.Begins(r.lo, r.hi); got != r.want {
			t.Errorf("an entry begins in [%#x, %#x): %v", r.lo, r.hi, got)
		}
	}
}

// loaded is an image that has data at address 0x400078, behind its headers.
func loaded(t *testing.T, data []byte) *elfio.File {
	t.Helper()
	const head = 64 + 56
	le := binary.LittleEndian
	b := make([]byte, head, head+len(data))
	copy(b, "\x7fELF\x02\x01\x01")
	b[16], b[18], b[20] = 2, 62, 1  // an executable for x86-64
	le.PutUint64(b[32:], 64)        // e_phoff
	b[52], b[54], b[56] = 64, 56, 1 // sizes of headers, their number
	le.PutUint32(b[64:], 1)         // PT_LOAD
	le.PutUint64(b[80:], 0x400000)  // p_vaddr
	le.PutUint64(b[96:], uint64(head+len(data)))
	le.PutUint64(b[104:], uint64(head+len(data)))
	f, err := elfio.Parse(append(b, data...))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCallSites(t *testing.T) {
	table := []byte{0x05, 0x03, 0x20, 0x01, 0x10, 0x04, 0x00, 0x00} // [5,8) to 0x20; [0x10,0x14) to nothing
	uleb := append([]byte{encOmit, encOmit, encULEB, byte(len(table))}, table...)
	pads := append([]byte{encUdata4, 0, 0x20, 0, 0, encULEB, 9, encULEB, byte(len(table))}, table...)
	le := binary.LittleEndian
	words := []byte{encOmit, encOmit, encUdata4, 13}
	for _, v := range []uint32{5, 3, 0x20} {
		words = le.AppendUint32(words, v)
	}
	words = append(words, 0)
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"in ULEB128", uleb, "1005-1008:1020 1010-1014:0"},
		{"with landing pads elsewhere", pads, "1005-1008:2020 1010-1014:0"},
		{"in words", words, "1005-1008:1020"},
		{"cut off", uleb[:len(uleb)-2], "does not fit"},
		{"a cut row", append([]byte{encOmit, encOmit, encULEB, 2}, 1, 1), "cut off"},
		{"another encoding", []byte{encOmit, encOmit, encAbsPtr, 0}, "encoding 0x0"},
		{"behind the function", append([]byte{encOmit, encOmit, encULEB, 4}, 0x30, 0x11, 0, 0), "ends behind its 64 bytes"},
	} {
		f := loaded(t, tt.data)
		d := FDE{PC: 0x1000, Size: 0x40, LSDA: 0x400000 + 0x78}
		sites, n, err := d.AppendCallSites(f, nil, 1000)
		var got []string
		for _, s := range sites {
			got = append(got, fmt.Sprintf("%x-%x:%x", s.Lo, s.Hi, s.Pad))
		}
		text := strings.Join(got, " ")
		if err != nil {
			if strings.Contains(err.Error(), tt.want) {
				continue
			}
			text = err.Error()
		}
		if text != tt.want || n != len(tt.data) {
			t.Errorf("%s: %s, %d of %d bytes; want %s", tt.name, text, n, len(tt.data), tt.want)
		}
	}
}

// TestMovedLSDA copies what gcc 12 has made of
//
//	void f() throw(int, std::exception) { try { g(); } catch (long) { } catch (...) { } }
//
// with the call at 4 in the middle of what has moved, and its return address at 9.
func TestMovedLSDA(t *testing.T) {
	le := binary.LittleEndian
	table := []byte{encOmit, encPCRel | encSdata4 | 0x80, 0, encULEB, 8,
		4, 5, 0x20, 5, // call at 4: long, or anything, or none of the list
		0x28, 5, 0, 0,
		0x7f, 0, // actions: 1: filter -1
		0, 0x7d, // 3: clean up, and then what is at 1
		1, 1, 2, 0x7b, // 5: filter 1, then 7: filter 2, then 3
	}
	for _, v := range []uint32{0x3000, 0, 0x2000} { // types 3, 2, 1
		at := uint32(0x400078 + len(table))
		if v != 0 {
			v -= at
		}
		table = le.AppendUint32(table, v)
	}
	table[2] = byte(len(table) - 3)
	table = append(table, 1, 3, 0)
	f := loaded(t, table)
	d := FDE{PC: 0x1000, Size: 0x40, LSDA: 0x400078}
	const to = 0x500000
	moved, err := d.AppendMovedLSDA(nil, f, to, 4, 9, false, func(off uint64) (uint64, bool) { return 2 * off, off == 4 || off == 9 })
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{encPCRel | encSdata4, 0, 0, 0, 0, encPCRel | encSdata4 | 0x80, 0, encULEB, 4, 8, 10, 0x20, 1,
		1, 1, 2, 1, 0, 1, 0x7f, 0} // one action behind the other
	le.PutUint32(want[1:], uint32(d.PC-(to+1)))
	want[6] = byte(len(want) - 7 + 12)
	for _, v := range []uint64{0x3000, 0, 0x2000} {
		if v != 0 {
			v -= to + uint64(len(want))
		}
		want = le.AppendUint32(want, uint32(v))
	}
	want = append(want, 1, 3, 0)
	if !bytes.Equal(moved, want) {
		t.Errorf("got\n% x\nwant\n% x", moved, want)
	}
	for _, bad := range []struct {
		at   int
		with byte
		want string
	}{
		{1, 0x30, "types with encoding 0x30"},
		{1, encUdata4, "types with encoding 0x3"}, // nothing relocates such
		{1, encOmit, "call sites with encoding"},
		{20, 0x7d, "end nowhere"}, // to the one before
		{5, 3, "in the middle of an instruction"},
	} {
		b := bytes.Clone(table)
		b[bad.at] = bad.with
		_, err := d.AppendMovedLSDA(nil, loaded(t, b), to, 4, 9, false, func(off uint64) (uint64, bool) { return off, off == 4 || off == 9 })
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("byte %d %#x: %v, want %s", bad.at, bad.with, err, bad.want)
		}
	}
}
