package arm64

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestRelocate(t *testing.T) {
	const at, to = 0x401000, 0x2401000
	for _, tt := range []struct {
		word  uint32
		moved []uint32
		text  string
	}{
		{0xa9be7bfd, []uint32{0xa9be7bfd}, "stp x29, x30, [sp, #-32]!"},
		{0xd65f03c0, []uint32{0xd65f03c0}, "ret"},
		{0x14000400, []uint32{0x17800400}, "b 0x402000"},
		{0x94000400, []uint32{0x97800400}, "bl 0x402000"},
		{0x54000080, []uint32{0x54000041, 0x17800003}, "b.ne 0x2401008 // b.any; b 0x401010"},
		{0x5400008d, []uint32{0x5400004c, 0x17800003}, "b.gt 0x2401008; b 0x401010"},
		{0x54000091, []uint32{0x54000050, 0x17800003}, "bc.eq 0x2401008 // bc.none; b 0x401010"},
		{0x5400008e, []uint32{0x17800004}, "b 0x401010"},
		{0x5400008f, []uint32{0x17800004}, "b 0x401010"},
		{0xb4ffffe3, []uint32{0xb5000043, 0x177ffffe}, "cbnz x3, 0x2401008; b 0x400ffc"},
		{0x35000083, []uint32{0x34000043, 0x17800003}, "cbz w3, 0x2401008; b 0x401010"},
		{0xb7f80083, []uint32{0xb6f80043, 0x17800003}, "tbz x3, #63, 0x2401008; b 0x401010"},
		{0x36080083, []uint32{0x37080043, 0x17800003}, "tbnz w3, #1, 0x2401008; b 0x401010"},
		{0x74034085 &^ 0xc000, []uint32{0x74030045, 0x14000002, 0x17800002}, ""}, // cbgt w5, w3
		{0x30000001, []uint32{0x90ff0001, 0x91000421}, "adrp x1, 0x401000; add x1, x1, #0x1"},
		{0x3000001f, []uint32{WordNop}, "nop"},
		{0xb0000010, []uint32{0xb0ff0010}, "adrp x16, 0x402000"},
		{0xb000001f, []uint32{WordNop}, "nop"},
		{0x18000041, []uint32{0x90ff0001, 0x91002021, 0xb9400021}, "adrp x1, 0x401000; add x1, x1, #0x8; ldr w1, [x1]"},
		{0x58000041, []uint32{0x90ff0001, 0x91002021, 0xf9400021}, "adrp x1, 0x401000; add x1, x1, #0x8; ldr x1, [x1]"},
		{0x5800005f, []uint32{WordNop}, "nop"},
		{0x98000041, []uint32{0x90ff0001, 0x91002021, 0xb9800021}, "adrp x1, 0x401000; add x1, x1, #0x8; ldrsw x1, [x1]"},
		{0xd8000040, []uint32{WordNop}, "nop"},
		{0x1c000041, []uint32{0xf81f0ff0, 0x90ff0010, 0x91002210, 0xbd400201, 0xf84107f0},
			"str x16, [sp, #-16]!; adrp x16, 0x401000; add x16, x16, #0x8; ldr s1, [x16]; ldr x16, [sp], #16"},
		{0x5c00005f, []uint32{0xf81f0ff0, 0x90ff0010, 0x91002210, 0xfd40021f, 0xf84107f0},
			"str x16, [sp, #-16]!; adrp x16, 0x401000; add x16, x16, #0x8; ldr d31, [x16]; ldr x16, [sp], #16"},
		{0x9c000041, []uint32{0xf81f0ff0, 0x90ff0010, 0x91002210, 0x3dc00201, 0xf84107f0},
			"str x16, [sp, #-16]!; adrp x16, 0x401000; add x16, x16, #0x8; ldr q1, [x16]; ldr x16, [sp], #16"},
	} {
		in := DecodeWord(tt.word)
		got, err := Relocate([]byte{0xaa}, in, append(code(tt.word), 0xcc), at, to)
		if err != nil || got[0] != 0xaa || !bytes.Equal(got[1:], code(tt.moved...)) {
			t.Errorf("%08x: % x, %v; want % x", tt.word, got[1:], err, code(tt.moved...))
			continue
		}
		if n := RelocatedLen(in); n != len(got)-1 {
			t.Errorf("%08x: RelocatedLen is %d, not %d", tt.word, n, len(got)-1)
		}
		if tt.text != "" {
			if !testtool.Have(t, objdumpTool) {
				continue
			}
			if text := disassemble(t, got[1:], to); text != tt.text {
				t.Errorf("%08x moved is %q, want %q", tt.word, text, tt.text)
			}
		}
	}
	for _, w := range []uint32{0xdac1a3fe, 0xd50324ff, 0xf380003f, 0x5500003f} {
		dst := []byte{1}
		if got, err := Relocate(dst, DecodeWord(w), code(w), at, to); err == nil || !bytes.Equal(got, dst) || !strings.Contains(err.Error(), "signed for the place") {
			t.Errorf("%08x: % x, %v", w, got, err)
		}
	}
	in := DecodeWord(WordRet)
	for _, src := range [][]byte{nil, code(WordRet)[:3], code(WordNop)} {
		if _, err := Relocate(nil, in, src, at, to); err == nil {
			t.Errorf("% x for a ret: no error", src)
		}
	}
	if _, err := Relocate(nil, in, code(WordRet), at, to+2); err == nil {
		t.Error("to an address that is no multiple of 4: no error")
	}
}

func TestRelocateRange(t *testing.T) {
	const at = 0x10_0040_1000
	for _, tt := range []struct {
		word uint32
		far  uint64 // how far the instruction can move up: the branch there is at off
		off  uint64
	}{
		{0x14000400, -BranchMin + 0x1000, 0}, {0x94000400, -BranchMin + 0x1000, 0}, {0x54000080, -BranchMin + 16 - 4, 4}, {0x36080083, -BranchMin + 16 - 4, 4},
		{0xb4000083, -BranchMin + 16 - 4, 4}, {0x74030085, -BranchMin + 16 - 8, 8},
		{0x30000001, 1<<32 + 0xffc, 0}, {0xb0000010, 1<<32 + 0x1ffc, 0}, {0x58000041, 1<<32 + 0xffc, 0}, {0x9c000041, 1<<32 + 0xff8, 4},
	} {
		in := DecodeWord(tt.word)
		target := in.Target(at)
		moved, err := Relocate(nil, in, code(tt.word), at, at+tt.far)
		if err != nil {
			t.Errorf("%08x by %#x: %v", tt.word, tt.far, err)
		} else if last := DecodeWord(word32(moved[tt.off:])); last.Target(at+tt.far+tt.off)&^pageMask != target&^pageMask {
			t.Errorf("%08x by %#x: % x", tt.word, tt.far, moved)
		}
		dst := []byte{1, 2}
		moved, err = Relocate(dst, in, code(tt.word), at, at+tt.far+4)
		var e *RangeError
		if !errors.As(err, &e) || e.From != at+tt.far+4+tt.off || e.To != target || !bytes.Equal(moved, dst) {
			t.Errorf("%08x by %#x: % x, %v; want a RangeError", tt.word, tt.far+4, moved, err)
		}
	}
}

// moveEntries moves the first n instructions of every function of the program
// file to its section .moved, up to the first jump or return, and writes the result
// to out. Functions with a branch into the moved instructions stay as they are. It
// returns the number moved.
func moveEntries(t *testing.T, file, out string, n int) int {
	t.Helper()
	image, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	moved, text := f.Section(".moved"), f.Section(".text")
	if moved == nil || text == nil {
		t.Fatalf("%s: no .moved or .text", file)
	}
	targets := map[uint64]bool{}
	code := image[text.Offset : text.Offset+text.Size]
	for off := uint64(0); off < text.Size; off += InstLen {
		if in := DecodeWord(word32(code[off:])); in.PCRel == PCRelBranch || in.PCRel == PCRelAddr {
			targets[in.Target(text.Addr+off)] = true
		}
	}
	area := image[moved.Offset : moved.Offset : moved.Offset+moved.Size]
	count := 0
	seen := map[uint64]bool{}
next:
	for _, fn := range functions(f) {
		if fn.Value-text.Addr >= text.Size || seen[fn.Value] {
			continue
		}
		seen[fn.Value] = true
		code := code[fn.Value-text.Addr:][:fn.Size]
		dst := area[len(area):]
		to := moved.Addr + uint64(len(area))
		size := 0
		for i := 0; i < n && size < len(code); i++ {
			in := DecodeWord(word32(code[size:]))
			if size > 0 && targets[fn.Value+uint64(size)] || in.Op == LoadEx {
				continue next
			}
			if dst, err = Relocate(dst, in, code[size:], fn.Value+uint64(size), to+uint64(len(dst))); err != nil {
				t.Fatalf("%s: %v", fn.Name, err)
			}
			size += InstLen
			if in.Op.EndsBlock() {
				break // what follows may be reached through a table, or be data
			}
		}
		if dst, err = AppendJump(dst, to+uint64(len(dst)), fn.Value+uint64(size)); err != nil {
			t.Fatalf("%s: %v", fn.Name, err)
		}
		if len(area)+len(dst) > cap(area) {
			t.Fatalf("%s: no more room in .moved", fn.Name)
		}
		area = area[:len(area)+len(dst)]
		b, err := AppendJump(nil, fn.Value, to)
		if err != nil {
			t.Fatalf("%s: %v", fn.Name, err)
		}
		for len(b) < size {
			b = appendWord(b, 0xd4200000) // nobody comes here any more
		}
		copy(code, b)
		count++
	}
	if err := runfile.WriteFile(out, image); err != nil {
		t.Fatal(err)
	}
	return count
}

// qemu runs an arm64 program.
func qemu(t testing.TB, args ...string) ([]byte, error) {
	t.Helper()
	return exec.Command(testtool.Path(t, "qemu-aarch64"), append([]string{"-L", sysroot}, args...)...).CombinedOutput()
}

// TestRunMoved runs static programs with the entries of their functions moved,
// those of the C library among them.
func TestRunMoved(t *testing.T) {
	cc := testtool.Path(t, gccTool)
	testtool.Need(t, "qemu-aarch64")
	if _, err := os.Stat(filepath.Join(sysroot, "lib/libc.a")); err != nil {
		t.Skipf("%v: install libc6-dev-arm64-cross", err)
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		source string
		flags  string
	}{
		{"testdata/forms.S", "-O0"},
		{"../amd64/testdata/program.c", "-O2 -mbranch-protection=standard"},
		{"../amd64/testdata/program.c", "-O1 -fno-inline -mcmodel=tiny"},
		{"../amd64/testdata/program.c", "-Os -fno-inline -march=armv8.1-a"},
	} {
		exe := filepath.Join(dir, "prog")
		// .moved is far from .text, so that no displacement stays as it was.
		args := append(strings.Fields(tt.flags), "-static", "-fno-pie", "-no-pie", "-Wl,--section-start=.moved=0x4000000", "-o", exe, tt.source, "testdata/room.S")
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, out)
		}
		want, err := qemu(t, exe)
		if err != nil || len(want) < 100 {
			t.Fatalf("%s %s unmoved: %v\n%s", tt.source, tt.flags, err, want)
		}
		for _, n := range []int{1, 2, 3, 4, 6, 9, 12} {
			patched := fmt.Sprintf("%s.%d", exe, n)
			count := moveEntries(t, exe, patched, n)
			got, err := qemu(t, patched)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s %s with %d instructions of %d functions moved: %v\n%s\nwant\n%s", tt.source, tt.flags, n, count, err, got, want)
			}
			if count < 600 {
				t.Errorf("%s %s: only %d functions moved", tt.source, tt.flags, count)
			}
			t.Logf("%s %s: %d instructions of %d functions moved", tt.source, tt.flags, n, count)
		}
	}
}
