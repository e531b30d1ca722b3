package arm64

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestDisplaced(t *testing.T) {
	const at, to = 0x401000, 0x501000
	for _, tt := range []struct {
		word  uint32
		moved string
	}{
		{0xa9bf7bfd, "stp x29, x30, [sp, #-16]!; b 0x401004"},
		{0xd65f03c0, "ret"},
		{0x14000004, "b 0x401010"},
		{0x94000004, "bl 0x401010; b 0x401004"},
		{0xb4000080, "cbnz x0, 0x501008; b 0x401010; b 0x401004"},
		{0x90000001, "adrp x1, 0x401000; b 0x401004"},
		{0x10000081, "adrp x1, 0x401000; add x1, x1, #0x10; b 0x401004"},
		{0x58000081, "adrp x1, 0x401000; add x1, x1, #0x10; ldr x1, [x1]; b 0x401004"},
		{0x5c000081, "adrp x16, 0x401000; add x16, x16, #0x10; ldr d1, [x16]; b 0x401004"},
		{0xd61f0200, "br x16"},
	} {
		src := code(tt.word)
		got, err := AppendDisplaced([]byte{0xaa}, src, at, to, at+uint64(len(src)))
		if err != nil || got[0] != 0xaa {
			t.Errorf("%s: %v", tt.moved, err)
			continue
		}
		text := disassemble(t, got[1:], to)
		if text = strings.NewReplacer(" // #16", "", " <", "<").Replace(text); text != tt.moved {
			t.Errorf("%s, want %s", text, tt.moved)
		}
		end, ok := DisplacedAt(src, InstLen)
		if n := DisplacedLen(src); n != len(got)-1 || !ok || end != n && end != n-JumpLen {
			t.Errorf("%s: DisplacedLen is %d, not %d; behind the instruction is %d, %v", tt.moved, n, len(got)-1, end, ok)
		}
	}
	for _, src := range [][]byte{{1, 2, 3}, {}, code(0xdac1a3fe)} {
		if got, err := AppendDisplaced([]byte{1}, src, at, to, at+uint64(len(src))); err == nil || len(got) != 1 {
			t.Errorf("% x: % x, %v", src, got, err)
		}
	}
	for _, off := range []int{-4, 2, 8} {
		if n, ok := DisplacedAt(code(WordNop), off); ok {
			t.Errorf("an instruction at %d of one: %d", off, n)
		}
	}
	b := bytes.Repeat([]byte{1}, 3)
	if got, err := AppendDisplaced(b, code(0x94000004), at, at+1<<30, at+4); err == nil || len(got) != 3 {
		t.Errorf("out of reach: % x, %v", got, err)
	}
}

// sequences are random instructions of all forms that a function begins with, followed by what ends the test. They have
// labels orig_0 and so on, and end_0. None of them uses x16, x29 or x30.
func sequences(r *rand.Rand, n int) string {
	reg := func() string { return fmt.Sprintf("x%d", []int{0, 1, 2, 4, 8, 9, 15, 17, 18, 19, 27, 28}[r.IntN(12)]) }
	half := func() string { return "w" + reg()[1:] }
	cc := func() string { return []string{"eq", "ne", "hs", "lo", "mi", "vs", "hi", "lt", "gt", "al"}[r.IntN(10)] }
	var b strings.Builder
	b.WriteString(".balign 16\nliterals:\n")
	for range 16 {
		fmt.Fprintf(&b, ".quad %#x\n", r.Uint64())
	}
	for i := range n {
		fmt.Fprintf(&b, "orig_%d:\n", i)
		target := func() string {
			if r.IntN(2) == 0 {
				return fmt.Sprintf("out_%d", i)
			}
			return fmt.Sprintf("exit_%d", r.IntN(3))
		}
		literal := func(size int) string { return fmt.Sprintf("literals+%d", r.IntN(128/size)*size) }
		for range 1 + r.IntN(4) {
			switch r.IntN(18) {
			case 0:
				fmt.Fprintf(&b, "movk %s, #%d, lsl #16\n", reg(), r.IntN(1<<16))
			case 1:
				fmt.Fprintf(&b, "adr %s, literals+%d\n", reg(), r.IntN(64))
			case 2:
				fmt.Fprintf(&b, "adrp %s, data\n", reg())
			case 3:
				fmt.Fprintf(&b, "ldr %s, %s\n", reg(), literal(8))
			case 4:
				fmt.Fprintf(&b, "ldr %s, %s\n", half(), literal(4))
			case 5:
				fmt.Fprintf(&b, "ldrsw %s, %s\n", reg(), literal(4))
			case 6:
				k := r.IntN(3)
				fmt.Fprintf(&b, "ldr %c%d, %s\n", "sdq"[k], r.IntN(4), literal(4<<k))
			case 7:
				fmt.Fprintf(&b, "prfm pldl1keep, %s\n", literal(8))
			case 8:
				fmt.Fprintf(&b, "b.%s %s\n", cc(), target())
			case 9:
				fmt.Fprintf(&b, "%s %s, %s\n", []string{"cbz", "cbnz"}[r.IntN(2)], []string{reg(), half()}[r.IntN(2)], target())
			case 10:
				fmt.Fprintf(&b, "%s %s, #%d, out_%d\n", []string{"tbz", "tbnz"}[r.IntN(2)], reg(), r.IntN(64), i)
			case 11:
				b.WriteString("bl helper\n")
			case 12:
				fmt.Fprintf(&b, "adds %s, %s, %s\n", reg(), reg(), reg())
			case 13:
				fmt.Fprintf(&b, "stp %s, %s, [sp, #-16]!\n", reg(), reg())
			case 14:
				fmt.Fprintf(&b, "csel %s, %s, %s, %s\n", reg(), reg(), reg(), cc())
			case 15:
				fmt.Fprintf(&b, "sub sp, sp, #16\n")
			case 16:
				fmt.Fprintf(&b, "ldr xzr, %s\nbti c\n", literal(8))
			case 17:
				fmt.Fprintf(&b, "paciasp\nautiasp\n")
			}
		}
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "b %s\n", target())
		}
		fmt.Fprintf(&b, "end_%d: b exit_3\nout_%d: b exit_0\n", i, i)
	}
	return b.String()
}

// TestRunDisplaced runs random sequences where they are and where they are displaced to, from the same registers, flags
// and memory, and compares what they leave and where they leave to.
func TestRunDisplaced(t *testing.T) {
	cc := testtool.Path(t, gccTool)
	testtool.Need(t, "qemu-aarch64")
	n := 2000
	if testtool.Wide() {
		n = 15000 // literals have to be within reach
	}
	dir := t.TempDir()
	src, exe := filepath.Join(dir, "seq.S"), filepath.Join(dir, "seq")
	var table strings.Builder
	for i := range n {
		fmt.Fprintf(&table, ".quad orig_%d, end_%d\n", i, i)
	}
	text := sequences(rand.New(rand.NewPCG(7, 11)), n) +
		fmt.Sprintf(".data\n.globl table, count, copies\ncount: .quad %d\ntable:\n%scopies: .zero %d\n", n, &table, 8*n) +
		fmt.Sprintf(".section .moved,\"ax\",%%progbits\n.zero %d\n", 100*n)
	if err := os.WriteFile(src, []byte(".arch armv8.5-a\n.text\n"+text+".section .note.GNU-stack,\"\",%progbits\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"-O1", "-fno-pie", "-no-pie", "-static", "-Wl,--section-start=.moved=0x4000000", "-o", exe, src,
		filepath.Join("testdata", "displaced.c")}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	displaceAll(t, exe, n)
	out, err := exec.Command("qemu-aarch64", exe).CombinedOutput()
	if want := fmt.Sprintf("%d sequences\n", n); err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}

// displaceAll fills the program's section .moved with copies of its sequences, and copies with their addresses.
func displaceAll(t *testing.T, exe string, n int) {
	t.Helper()
	image, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range syms {
		at[s.Name] = s.Value
	}
	text, data, moved := f.Section(".text"), f.Section(".data"), f.Section(".moved")
	copies := image[data.Offset+at["copies"]-data.Addr:]
	area := image[moved.Offset : moved.Offset : moved.Offset+moved.Size]
	for i := range n {
		lo, hi := at[fmt.Sprintf("orig_%d", i)], at[fmt.Sprintf("end_%d", i)]
		src := image[text.Offset+lo-text.Addr:][:hi-lo]
		to := moved.Addr + uint64(len(area))
		if area, err = AppendDisplaced(area, src, lo, to, hi); err != nil {
			t.Fatalf("sequence %d, % x: %v", i, src, err)
		}
		if got := moved.Addr + uint64(len(area)) - to; got != uint64(DisplacedLen(src)) {
			t.Fatalf("sequence %d, % x: %d bytes, DisplacedLen says %d", i, src, got, DisplacedLen(src))
		}
		binary.LittleEndian.PutUint64(copies[8*i:], to)
	}
	if err := runfile.WriteFile(exe, image); err != nil {
		t.Fatal(err)
	}
}
