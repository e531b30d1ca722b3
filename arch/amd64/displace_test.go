package amd64

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

func TestDisplaced(t *testing.T) {
	const at, to = 0x401000, 0x501000
	for _, tt := range []struct {
		code, moved string
		at          []int // where in the copy each instruction begins, and what follows
	}{
		{"53 48 89 fb 85 f6", "53 48 89 fb 85 f6 e9 fb ff ef ff", []int{0, 1, 4, 6}},
		{"74 0e 31 c0 c3", "0f 84 0a 00 f0 ff 31 c0 f3 c3", []int{0, 6, 8, 10}},
		{"48 83 ec 08 e8 00 01 00 00", "48 83 ec 08 e8 00 01 f0 ff e9 fb ff ef ff", []int{0, 4, 9}},
		{"eb 10", "e9 0d 00 f0 ff", []int{0, 5}},
		{"e3 01 90 90 90", "e3 02 eb 05 e9 fa ff ef ff 90 90 90 e9 f4 ff ef ff", []int{0, 9, 10, 11, 12}},
	} {
		src := unhex(t, tt.code)
		got, err := AppendDisplaced([]byte{0xaa}, src, at, to)
		if err != nil || got[0] != 0xaa || !bytes.Equal(got[1:], unhex(t, tt.moved)) {
			t.Errorf("%s: % x, %v; want %s", tt.code, got, err, tt.moved)
			continue
		}
		if n := DisplacedLen(src); n != len(got)-1 {
			t.Errorf("%s: DisplacedLen is %d, not %d", tt.code, n, len(got)-1)
		}
		var places []int
		for off := range len(src) + 1 {
			if n, ok := DisplacedAt(src, off); ok {
				places = append(places, n)
			}
		}
		if fmt.Sprint(places) != fmt.Sprint(tt.at) {
			t.Errorf("%s: instructions at %v, want %v", tt.code, places, tt.at)
		}
	}
	for _, code := range []string{"48 89", "06", "90 e9 00"} {
		src := unhex(t, code)
		if got, err := AppendDisplaced([]byte{1}, src, at, to); err == nil || len(got) != 1 || DisplacedLen(src) != 0 {
			t.Errorf("%s, which is no whole instruction: % x, %v, %d bytes", code, got, err, DisplacedLen(src))
		}
	}
	if got, err := AppendDisplaced([]byte{1}, unhex(t, "90 74 10"), at, at+1<<32); err == nil || len(got) != 1 {
		t.Errorf("out of reach: % x, %v", got, err)
	}
}

// sequences are random instructions of all forms that a function begins with, followed by what ends the test. They have
// labels orig_0 and so on, and end_0.
func sequences(r *rand.Rand, n int) string {
	reg := func() string {
		return []string{"rax", "rcx", "rdx", "rbx", "rsi", "rdi", "r8", "r9", "r12", "r13", "r15"}[r.IntN(11)]
	}
	cc := func() string { return []string{"o", "b", "e", "ne", "a", "s", "p", "l", "g"}[r.IntN(9)] }
	exit := func() string { return fmt.Sprintf("exit_%d", r.IntN(3)) }
	var b strings.Builder
	for i := range n {
		near := r.IntN(2) == 0 // short branches have to stay near
		fmt.Fprintf(&b, "orig_%d:\n", i)
		target := func() string {
			if near {
				return fmt.Sprintf("out_%d", i)
			}
			return exit()
		}
		for range 1 + r.IntN(5) {
			switch r.IntN(16) {
			case 0:
				fmt.Fprintf(&b, "mov $%d, %%%s\n", r.Int32(), reg())
			case 1:
				fmt.Fprintf(&b, "lea data+%d(%%rip), %%%s\n", r.IntN(64), reg())
			case 2:
				fmt.Fprintf(&b, "add %%%s, %%%s\n", reg(), reg())
			case 3:
				fmt.Fprintf(&b, "cmpl $%d, data+%d(%%rip)\n", r.Int32(), r.IntN(60))
			case 4:
				fmt.Fprintf(&b, "cmpb $%d, data+%d(%%rip)\n", r.IntN(128), r.IntN(60))
			case 5:
				fmt.Fprintf(&b, "movzbl data+%d(%%rip), %%ecx\n", r.IntN(64))
			case 6:
				fmt.Fprintf(&b, "movdqu data+%d(%%rip), %%xmm3\nmovq %%xmm3, %%%s\n", r.IntN(48), reg())
			case 7:
				fmt.Fprintf(&b, "j%s %s\n", cc(), target())
			case 8:
				fmt.Fprintf(&b, "%s %s\n", []string{"loop", "loope", "loopne", "jrcxz", "jecxz"}[r.IntN(5)], fmt.Sprintf("out_%d", i))
			case 9:
				fmt.Fprintf(&b, "call helper\n")
			case 10:
				fmt.Fprintf(&b, "call *slot(%%rip)\n")
			case 11:
				fmt.Fprintf(&b, "push %%%s\n", reg())
			case 12:
				fmt.Fprintf(&b, "incq data+%d(%%rip)\n", r.IntN(48))
			case 13:
				fmt.Fprintf(&b, "set%s %%al\n", cc())
			case 14:
				fmt.Fprintf(&b, "nopl 8(%%rax,%%rax)\n")
			case 15:
				fmt.Fprintf(&b, "sub $%d, %%%s\n", r.IntN(100), reg())
			}
		}
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "jmp %s\n", target())
		}
		fmt.Fprintf(&b, "end_%d: jmp exit_3\nout_%d: jmp exit_0\n", i, i)
	}
	return b.String()
}

// TestRunDisplaced runs random sequences where they are and where they are displaced to, from the same registers, flags
// and memory, and compares what they leave and where they leave to.
func TestRunDisplaced(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the moved programs run on linux/amd64 only")
	}
	cc := testtool.Path(t, "gcc")
	n := 2000
	if testtool.Wide() {
		n = 40000
	}
	dir := t.TempDir()
	src, exe := filepath.Join(dir, "seq.S"), filepath.Join(dir, "seq")
	var table strings.Builder
	for i := range n {
		fmt.Fprintf(&table, ".quad orig_%d, end_%d\n", i, i)
	}
	text := sequences(rand.New(rand.NewPCG(7, 11)), n) +
		fmt.Sprintf(".data\n.globl table, count, copies\ncount: .quad %d\ntable:\n%scopies: .zero %d\n", n, &table, 8*n) +
		fmt.Sprintf(".section .moved,\"ax\",@progbits\n.zero %d\n", 80*n)
	if err := os.WriteFile(src, []byte(".text\n"+text+".section .note.GNU-stack,\"\",@progbits\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"-O1", "-no-pie", "-Wl,--section-start=.moved=0x10000000", "-o", exe, src,
		filepath.Join("testdata", "displaced.c")}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	displaceAll(t, exe, n)
	out, err := exec.Command(exe).CombinedOutput()
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
	le := binary.LittleEndian
	copies := image[data.Offset+at["copies"]-data.Addr:]
	area := image[moved.Offset : moved.Offset : moved.Offset+moved.Size]
	for i := range n {
		lo, hi := at[fmt.Sprintf("orig_%d", i)], at[fmt.Sprintf("end_%d", i)]
		src := image[text.Offset+lo-text.Addr:][:hi-lo]
		to := moved.Addr + uint64(len(area))
		if area, err = AppendDisplaced(area, src, lo, to); err != nil {
			t.Fatalf("sequence %d, % x: %v", i, src, err)
		}
		if got := moved.Addr + uint64(len(area)) - to; got != uint64(DisplacedLen(src)) {
			t.Fatalf("sequence %d, % x: %d bytes, DisplacedLen says %d", i, src, got, DisplacedLen(src))
		}
		le.PutUint64(copies[8*i:], to)
	}
	if err := runfile.WriteFile(exe, image); err != nil {
		t.Fatal(err)
	}
}
