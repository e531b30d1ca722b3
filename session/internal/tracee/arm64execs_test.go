//go:build linux

package tracee

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// code are instructions as bytes.
func code(words ...uint32) (b []byte) {
	for _, w := range words {
		b = le.AppendUint32(b, w)
	}
	return b
}

// Every form in which programs are executed on arm64 is found, and nothing else.
func TestFindExecsARM64(t *testing.T) {
	const execve, execveat, behind, nop = 0xd2801ba8, 0xd2802328, 0xb13ffc1f /* cmn x0, #4095 */, 0xd503201f
	s := arm64.SyscallCopy{At: 0x40, Enter: 0x1000, Exit: 0x2000}
	recorded, err := s.Append(nil, 0x80)
	if err != nil {
		t.Fatal(err)
	}
	to := func(words uint32) uint32 { return 0x14000000 | words&0x3ffffff }
	at := func(off int, b []byte, behind []byte) []byte {
		return append(append(b, make([]byte, off-len(b))...), behind...)
	}
	for _, tt := range []struct {
		name string
		code []byte
		want []execSite
	}{
		{"glibc", code(nop, execve, arm64.WordSvc, behind), []execSite{{8, 221}}},
		{"both", code(execve, arm64.WordSvc, behind, execveat, arm64.WordSvc), []execSite{{4, 221}, {16, 281}}},
		{"32 bits", code(0x52801ba8, arm64.WordSvc), []execSite{{4, 221}}},
		{"musl", code(execve, 0xaa0403e0 /* mov x0, x4 */, nop, arm64.WordSvc, behind), []execSite{{12, 221}}},
		{"displaced", code(execve, to(3), nop, nop, arm64.WordSvc), []execSite{{16, 221}}},
		{"recorded", at(0x80, code(nop, execve, to(0x78/4)), recorded), []execSite{{0x8c, 221}, {0xa4, 221}}},
		{"recorded, displaced", at(0x80, code(execve, to(2), nop, to(0x74/4)), recorded), []execSite{{0x8c, 221}, {0xa4, 221}}},
		{"prctl", code(0xd28014e8, arm64.WordSvc), []execSite{{4, 167}}},
		{"glibc's prctl", code(0xd28014e8, 0xf90007e0, 0xf9000be1, 0xf9000fe2, 0xf90013e3, 0xf90017e4, 0xf9001be5, 0xf9001fe6, 0xf90023e7,
			arm64.WordSvc, behind), []execSite{{36, 167}}},
		{"seccomp", code(0xd28022a8, arm64.WordSvc), []execSite{{4, 277}}},
		{"syscall", code(nop, 0x2a0003e8 /* mov w8, w0 */, 0xaa0103e0 /* mov x0, x1 */, 0xaa0203e1, 0xaa0303e2, 0xaa0403e3,
			0xaa0503e4, 0xaa0603e5, 0xaa0703e6, arm64.WordSvc, behind), []execSite{{36, anyNumber}}},
		{"round and round", code(execve, to(0)), nil},
		{"another call", code(0xd2801588, arm64.WordSvc), nil},
		{"another register", code(0xd2801ba9, arm64.WordSvc), nil},
		{"another number meanwhile", code(execve, 0xd2801588, arm64.WordSvc), nil},
		{"a call meanwhile", code(execve, 0x94000002, arm64.WordSvc), nil},
		{"a branch meanwhile", code(execve, 0xb4000040, arm64.WordSvc), nil},
		{"too far", code(append(append([]uint32{execve}, slices.Repeat([]uint32{nop}, arm64Between)...), arm64.WordSvc)...), nil},
		{"a jump to nothing", code(execve, to(0x100000)), nil},
		{"cut off", code(execve), nil},
		{"cut off in an instruction", code(execve, arm64.WordSvc)[:6], nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := arm64FindExecs(tt.code, memoryOf(tt.code)); !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// Of a C library, the functions are found that make the calls.
func TestFindExecsOfLibcARM64(t *testing.T) {
	testtool.Need(t, "aarch64-linux-gnu-gcc")
	f, err := elf.Open("/usr/aarch64-linux-gnu/lib/libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	syms, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, s := range arm64FindExecs(text, memoryOf(text)) {
		for _, sym := range syms {
			if addr := f.Section(".text").Addr + s.at; addr-sym.Value < sym.Size {
				found[fmt.Sprint(sym.Name, " ", s.nr)] = true
			}
		}
	}
	for _, want := range []string{"execve 221", "execveat 281", "fexecve 281"} {
		if !found[want] {
			t.Errorf("%s is not among %v", want, found)
		}
	}
}

func FuzzFindExecsARM64(f *testing.F) {
	f.Add(code(0xd2801ba8, arm64.WordSvc))
	f.Add(code(0xd2802328, 0x14000002, 0, arm64.WordSvc))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range arm64FindExecs(b, memoryOf(b)) {
			if s.at%4 != 0 || s.at+4 > uint64(len(b)) || le.Uint32(b[s.at:]) != arm64.WordSvc {
				t.Errorf("at %d of %d bytes", s.at, len(b))
			}
		}
	})
}

// A stub asks, with all registers but two as they are and these saved, makes the call and goes back. What is too far away is
// left.
func TestExecStubsARM64(t *testing.T) {
	testtool.Need(t, "aarch64-linux-gnu-gcc", "qemu-aarch64")
	prog := filepath.Join(t.TempDir(), "prog")
	if out, err := exec.Command("aarch64-linux-gnu-gcc", "-static", "-no-pie", "-O1", "-o", prog, "testdata/execstub.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	f, err := elf.Open(prog)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	addr := map[string]uint64{}
	for _, s := range syms {
		addr[s.Name] = s.Value
	}
	b, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	put := func(at uint64, data []byte) {
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && at-p.Vaddr < p.Filesz {
				copy(b[at-p.Vaddr+p.Off:], data)
			}
		}
	}
	stubs, edits := arm64ExecStubs(addr["page"], addr["routine"], []execSite{{addr["page"] + 1<<30, 221}, {addr["site"], 221}})
	if len(stubs) != arm64StubSize || len(edits) != 1 || edits[0].Addr != addr["site"] {
		t.Fatalf("%d bytes, %+v", len(stubs), edits)
	}
	put(addr["page"], stubs)
	put(addr["site"], edits[0].New)
	if err := runfile.WriteFile(prog, b); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("qemu-aarch64", prog).CombinedOutput(); err != nil || string(out) != "asked once\n" {
		t.Errorf("%v: %s", err, out)
	}
}
