package amd64

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestRelocate(t *testing.T) {
	objdumpAt := func(code []byte, addr uint64) string {
		if !testtool.Have(t, "objdump") {
			return ""
		}
		return strings.Join(disassemble(t, code, addr), "; ")
	}
	const at, to = 0x401000, 0x501000
	for _, tt := range []struct{ code, moved, text string }{
		{"55", "55", "push %rbp"},
		{"48 8d 05 f9 0f 00 00", "48 8d 05 f9 0f f0 ff", "lea -0xff007(%rip),%rax # 0x402000"},
		{"67 48 8d 05 f8 0f 00 00", "67 48 8d 05 f8 0f f0 ff", "lea -0xff008(%eip),%rax # 0x402000"},
		{"66 c7 05 f7 0f 00 00 34 12", "66 c7 05 f7 0f f0 ff 34 12", "movw $0x1234,-0xff009(%rip) # 0x402000"},
		{"ff 15 fa 0f 00 00", "ff 15 fa 0f f0 ff", "call *-0xff006(%rip) # 0x402000"},
		{"c5 fc 28 15 f8 0f 00 00", "c5 fc 28 15 f8 0f f0 ff", "vmovaps -0xff008(%rip),%ymm2 # 0x402000"},
		{"62 f3 7d 48 25 05 f5 0f 00 00 ff", "62 f3 7d 48 25 05 f5 0f f0 ff ff", "vpternlogd $0xff,-0xff00b(%rip),%zmm0,%zmm0 # 0x402000"},
		{"e8 fb 0f 00 00", "e8 fb 0f f0 ff", "call 0x402000"},
		{"67 e8 fa 0f 00 00", "67 e8 fa 0f f0 ff", "addr32 call 0x402000"},
		{"66 66 48 e8 f8 0f 00 00", "66 66 48 e8 f8 0f f0 ff", "data16 data16 rex.W call 0x402000"},
		{"e9 fb 0f 00 00", "e9 fb 0f f0 ff", "jmp 0x402000"},
		{"0f 84 fa 0f 00 00", "0f 84 fa 0f f0 ff", "je 0x402000"},
		{"eb 0e", "e9 0b 00 f0 ff", "jmp 0x401010"},
		{"f2 eb 0d", "f2 e9 0a 00 f0 ff", "bnd jmp 0x401010"},
		{"75 0e", "0f 85 0a 00 f0 ff", "jne 0x401010"},
		{"7f fe", "0f 8f fa ff ef ff", "jg 0x401000"},
		{"2e 74 0d", "2e 0f 84 09 00 f0 ff", "je,pn 0x401010"},
		{"e2 0e", "e2 02 eb 05 e9 07 00 f0 ff", "loop 0x501004; jmp 0x501009; jmp 0x401010"},
		{"e1 0e", "e1 02 eb 05 e9 07 00 f0 ff", "loope 0x501004; jmp 0x501009; jmp 0x401010"},
		{"e0 0e", "e0 02 eb 05 e9 07 00 f0 ff", "loopne 0x501004; jmp 0x501009; jmp 0x401010"},
		{"e3 0e", "e3 02 eb 05 e9 07 00 f0 ff", "jrcxz 0x501004; jmp 0x501009; jmp 0x401010"},
		{"67 e3 0d", "67 e3 02 eb 05 e9 06 00 f0 ff", "jecxz 0x501005; jmp 0x50100a; jmp 0x401010"},
		{"c7 f8 0a 00 00 00", "c7 f8 0a 00 f0 ff", "xbegin 0x401010"},
		{"66 c7 f8 0b 00", "2e c7 f8 09 00 f0 ff", "cs xbegin 0x401010"},
		{"41 ff d2", "41 ff d2", "call *%r10"},
	} {
		src := unhex(t, tt.code)
		in, err := Decode(src)
		if err != nil {
			t.Errorf("%s: %v", tt.code, err)
			continue
		}
		got, err := Relocate([]byte{0xaa}, in, append(src, 0xcc), at, to)
		if err != nil || got[0] != 0xaa || !bytes.Equal(got[1:], unhex(t, tt.moved)) {
			t.Errorf("%s: % x, %v; want %s", tt.code, got, err, tt.moved)
			continue
		}
		if n := RelocatedLen(in); n != len(got)-1 {
			t.Errorf("%s: RelocatedLen is %d, not %d", tt.code, n, len(got)-1)
		}
		if text := objdumpAt(got[1:], to); text != "" && text != tt.text {
			t.Errorf("%s moved is %q, want %q", tt.code, text, tt.text)
		}
	}
}

func TestRelocateRange(t *testing.T) {
	for _, code := range []string{"48 8d 05 00 00 00 00", "e8 00 00 00 00", "eb 00", "74 00", "e2 00", "66 c7 f8 00 00", "0f 85 00 00 00 00"} {
		src := unhex(t, code)
		in, err := Decode(src)
		if err != nil {
			t.Fatal(err)
		}
		const at = 0x401000
		target := in.Target(at)
		// The last place from which the target can be reached, and the one behind it.
		last := target + 1<<31 - uint64(RelocatedLen(in))
		moved, err := Relocate(nil, in, src, at, last)
		if err != nil {
			t.Errorf("%s to %#x: %v", code, last, err)
		} else if end, err := Decode(moved[len(moved)-5:]); in.PCRel == PCRelBranch && in.PCSize == 1 && in.Op != Jcc && (err != nil || end.Target(last+uint64(len(moved))-5) != target) {
			t.Errorf("%s to %#x: % x", code, last, moved)
		}
		dst := []byte{1, 2}
		moved, err = Relocate(dst, in, src, at, last+1)
		var e *RangeError
		if !errors.As(err, &e) || e.From != last+1 || e.To != target || !bytes.Equal(moved, dst) {
			t.Errorf("%s to %#x: % x, %v; want a RangeError", code, last+1, moved, err)
		}
	}
	// disp32(%eip) wraps at 4 GiB and reaches everything there.
	src := unhex(t, "67 48 8d 05 00 00 00 00")
	in, err := Decode(src)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := Relocate(nil, in, src, 0x401000, 0xf000_0000)
	if err != nil {
		t.Fatal(err)
	}
	if in2, err := Decode(moved); err != nil || in2.Target(0xf000_0000) != in.Target(0x401000) {
		t.Errorf("eip-relative: % x refers to %#x, not %#x", moved, in2.Target(0xf000_0000), in.Target(0x401000))
	}
	if _, err := Relocate(nil, in, src[:5], 0x401000, 0x501000); err == nil {
		t.Error("instruction that is cut off: no error")
	}
}

// moveEntries moves the first instructions of every function of the program
// file to its section .moved, n of them but at least the five bytes of a jump
// there, up to the first jump or return, and writes the result to out. Functions
// too short for it, or with a branch into the moved bytes, stay as they are. It
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
	for off := uint64(0); off < text.Size; {
		in, err := Decode(code[off:])
		if err != nil {
			off++
			continue
		}
		if in.PCRel == PCRelBranch {
			targets[in.Target(text.Addr+off)] = true
		}
		off += uint64(in.Len)
	}
	area := image[moved.Offset : moved.Offset : moved.Offset+moved.Size]
	count := 0
next:
	for _, fn := range functions(f) {
		if fn.Value-text.Addr >= text.Size {
			continue
		}
		code := code[fn.Value-text.Addr:][:fn.Size]
		dst := area[len(area):]
		to := moved.Addr + uint64(len(area))
		size := 0
		for i := 0; size < JumpLen || i < n; i++ {
			in, err := Decode(code[size:])
			if err != nil {
				continue next // a short function
			}
			if size > 0 && targets[fn.Value+uint64(size)] {
				continue next
			}
			for a := 1; a < in.Len; a++ {
				if targets[fn.Value+uint64(size+a)] {
					continue next
				}
			}
			if dst, err = Relocate(dst, in, code[size:], fn.Value+uint64(size), to+uint64(len(dst))); err != nil {
				t.Fatalf("%s: %v", fn.Name, err)
			}
			size += in.Len
			if in.Op.EndsBlock() && size >= JumpLen {
				break // what follows may be reached through a table
			} else if in.Op.EndsBlock() {
				continue next
			}
		}
		if dst, err = AppendJump(dst, to+uint64(len(dst)), fn.Value+uint64(size)); err != nil {
			t.Fatalf("%s: %v", fn.Name, err)
		}
		if len(area)+len(dst) > cap(area) {
			t.Fatalf("%s: no more room in .moved", fn.Name)
		}
		area = area[:len(area)+len(dst)]
		b, err := AppendJumpSite(nil, size, fn.Value, to)
		if err != nil {
			t.Fatalf("%s: %v", fn.Name, err)
		}
		for i := JumpLen; i < size; i++ {
			b[i] = 0xcc // nobody comes here any more
		}
		copy(code, b)
		count++
	}
	if err := runfile.WriteFile(out, image); err != nil {
		t.Fatal(err)
	}
	return count
}

// TestRunMoved runs programs with the entries of their functions moved.
func TestRunMoved(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the moved programs run on linux/amd64 only")
	}
	cc := testtool.Path(t, "gcc")
	dir := t.TempDir()
	for _, tt := range []struct {
		source string
		flags  string
		min    int // functions that move with one instruction
	}{
		{"forms.S", "-O0", 24},
		{"program.c", "-O2 -fcf-protection=full", 12},
		{"program.c", "-O1 -fno-inline -mno-red-zone -fno-pie", 12},
		{"program.c", "-Os -fno-inline", 12},
	} {
		exe := filepath.Join(dir, "prog")
		// .moved is far from .text, so that no displacement stays as it was.
		args := append(strings.Fields(tt.flags), "-no-pie", "-Wl,--section-start=.moved=0x10000000", "-o", exe, filepath.Join("testdata", tt.source))
		if strings.HasSuffix(tt.source, ".c") {
			args = append(args, filepath.Join("testdata", "room.S"))
		}
		if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
			t.Fatalf("gcc %v: %v\n%s", args, err, out)
		}
		want, err := exec.Command(exe).CombinedOutput()
		if err != nil || len(want) < 100 {
			t.Fatalf("%s %s unmoved: %v\n%s", tt.source, tt.flags, err, want)
		}
		for n := 1; n <= 12; n++ {
			patched := fmt.Sprintf("%s.%d", exe, n)
			count := moveEntries(t, exe, patched, n)
			got, err := exec.Command(patched).CombinedOutput()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s %s with %d instructions of %d functions moved: %v\n%s\nwant\n%s", tt.source, tt.flags, n, count, err, got, want)
			}
			if n == 1 && count < tt.min {
				t.Errorf("%s %s: only %d functions moved", tt.source, tt.flags, count)
			}
		}
	}
}
