package plain

import (
	"debug/elf"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// installed are programs of x86-64, of compilers of C, C++ and Rust. Not among them are those with functions in
// assembly, whose unwind tables are mostly right where a call can be, and only there.
var installed = []string{
	"/usr/bin/git", "/usr/bin/perl", "/usr/bin/python3.11", "/usr/bin/bash", "/usr/bin/cmake", "/usr/bin/rg",
	"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
}

// ofARM64 are Debian's packages of programs of gcc for AArch64: clang's tables say nothing of the ends of functions.
var ofARM64 = [][2]string{
	{"git", "usr/bin/git"}, {"perl-base", "usr/bin/perl"}, {"python3.11-minimal", "usr/bin/python3.11"},
	{"bash", "bin/bash"}, {"libstdc++6", "usr/lib/aarch64-linux-gnu/libstdc++.so.6"},
}

// finders calls test for each program of both machines.
func finders(t *testing.T, test func(t *testing.T, f *Finder)) {
	tried := 0
	try := func(t *testing.T, path string, m elf.Machine) {
		b, err := os.ReadFile(path)
		if err != nil {
			return
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header.Machine != m {
			return
		}
		text, err := code.New(f)
		if err != nil {
			t.Fatal(err)
		}
		syms, err := symbol.New(f)
		if err != nil {
			t.Fatal(err)
		}
		x, err := New(f, text, syms.Funcs(), nil)
		if err != nil {
			t.Fatal(err)
		}
		tried++
		t.Run(filepath.Base(path), func(t *testing.T) { test(t, x) })
	}
	t.Run("amd64", func(t *testing.T) {
		for _, path := range installed {
			try(t, path, elf.EM_X86_64)
		}
		if tried == 0 {
			t.Skip("none of the programs is installed")
		}
	})
	t.Run("arm64", func(t *testing.T) {
		for _, p := range ofARM64 {
			try(t, filepath.Join(debs.ARM64(t, p[0]), p[1]), elf.EM_AARCH64)
		}
	})
}

// agrees reports whether what has been found out about an instruction is what its unwind row says; told: there is
// something to be compared.
func (s stackFrame) agrees(row *ehframe.Row) (ok, told bool) {
	switch row.Reg {
	case dwarfRSP:
		return s.depth == row.Off, true
	case dwarfRBP:
		return !s.framed || s.rbp == row.Off, true
	}
	return true, false
}

func (s arm64Frame) agrees(row *ehframe.Row) (ok, told bool) {
	switch row.Reg {
	case dwarfSP:
		ok, told = s.depth == row.Off, true
	case dwarfX29:
		ok, told = s.framed && s.fp == row.Off, true
	}
	switch {
	case row.Signed != s.signed, row.Saved && (!s.maybe || s.slot != row.Ret), !row.Moved && s.lr != hasReturn:
		ok = false
	}
	return ok, told
}

// TestFollow follows the functions of installed programs as if they had no unwind tables, and compares what is found with
// these: at each instruction the stack pointer and the frame pointer are where the tables say. Some of LLVM's say that
// something is on the stack still for an instruction or two behind the one that has taken it off.
func TestFollow(t *testing.T) {
	finders(t, func(t *testing.T, f *Finder) {
		switch w := f.m.follower(f).(type) {
		case *amd64Follower:
			testFollow(t, f, w, &w.following, stackFrame.agrees)
		case *arm64Follower:
			testFollow(t, f, w, &w.following, arm64Frame.agrees)
		}
	})
}

func testFollow[S frame[S]](t *testing.T, f *Finder, w follower, found *following[S],
	agrees func(S, *ehframe.Row) (ok, told bool)) {
	var understood, functions, rows, wrong int
	for i := range f.funcs {
		d, ok := f.index.Find(f.funcs[i].Addr)
		if !ok || f.funcs[i].Part || d.PC != f.funcs[i].Addr || d.CIE.Signal || f.marks.get(d.PC)&(called|pointed) == 0 {
			continue
		}
		if f.m == machine(arm64Machine{}) && f.facts[i]&dispatches != 0 && f.marks.any(d.PC, f.end(i))&landingPad != 0 {
			continue // what unwinders go to is not reached otherwise; functions without unwind entries have none
		}
		functions++
		if _, ok := w.follow(i); !ok {
			continue
		}
		understood++
		var fr frames
		fr.open(f.index, d.PC)
		for at, s := range found.seen {
			row, known := fr.at(at)
			if !known {
				continue
			}
			switch ok, told := agrees(s, row); {
			case !ok:
				if wrong++; wrong*1000 > rows {
					t.Errorf("%s %#x at %#x: %+v, want %+v", f.funcs[i].Name, d.PC, at, s, *row)
				}
			case told:
				rows++
			}
		}
	}
	t.Logf("%d of %d functions understood, %d instructions right, %d wrong", understood, functions, rows, wrong)
	if understood*100 < functions*98 {
		t.Errorf("%d of %d functions understood", understood, functions)
	}
}

// TestUnlisted looks for the functions of installed programs as if neither symbols nor unwind tables told of any: what is
// taken for one because it is called is one by these.
func TestUnlisted(t *testing.T) {
	finders(t, func(t *testing.T, f *Finder) {
		index, known := f.index, map[uint64]bool{}
		for i := range f.funcs {
			known[f.funcs[i].Addr] = true
		}
		f.index, f.funcs = ehframe.NewIndex(new(ehframe.Table)), nil
		called, others := f.Unlisted()
		wrong := 0
		for _, addr := range called {
			if _, covered := index.Find(addr); covered && !known[addr] {
				if wrong++; wrong < 20 {
					t.Errorf("%#x is no function", addr)
				}
			}
		}
		t.Logf("%d functions, %d found by calls, %d wrong; %d others", len(known), len(called), wrong, len(others))
		if len(called) < 200 {
			t.Errorf("%d of %d functions found", len(called), len(known))
		}
	})
}

// finderOf finds the functions of some code, one at every so many bytes.
func finderOf(m machine, b []byte, every int) *Finder {
	const base = 0x401000
	text := &code.Text{Regions: []code.Region{{Addr: base, Data: b, Name: ".text", Exact: true}}}
	file := &elfio.File{Progs: []elfio.Prog{{Type: elf.PT_INTERP}}}
	x := &Finder{file: file, text: text, m: m, fixed: true}
	for at := 0; at < len(b); at += every {
		x.funcs = append(x.funcs, symbol.Func{Addr: base + uint64(at), Name: "f"})
	}
	x.decode(new(ehframe.Table))
	return x
}

// TestFollowStacks: functions that align their stack are understood, those that end on another one are not.
func TestFollowStacks(t *testing.T) {
	const (
		prologue = "4c8d5424084883e4e041ff72f8554889e541524883ec60"
		aligned  = "lea 8(%rsp),%r10; and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r10; sub $0x60,%rsp; "
	)
	for _, c := range []struct {
		name       string
		ok         bool
		code, text string
	}{
		{"as gcc ends", true, prologue + "ffd04883c460415a5d498d62f8c3",
			aligned + "call *%rax; add $0x60,%rsp; pop %r10; pop %rbp; lea -8(%r10),%rsp; ret"},
		{"with leave", true, prologue + "4189fa4c8b55f8c9498d62f8c3",
			aligned + "mov %edi,%r10d; mov -8(%rbp),%r10; leave; lea -8(%r10),%rsp; ret"},
		{"with room of any size", true, prologue + "4829c4ffd04c8b55f8c9498d62f8c3",
			aligned + "sub %rax,%rsp; call *%rax; mov -8(%rbp),%r10; leave; lea -8(%r10),%rsp; ret"},
		{"saves and loads an address", false, "534c8d5424104c89174989f2498d62f05bc3",
			"push %rbx; lea 16(%rsp),%r10; mov %r10,(%rdi); mov %rsi,%r10; lea -16(%r10),%rsp; pop %rbx; ret"},
		{"the same in rax", false, "53488d4424104889074889f0488d60f05bc3",
			"push %rbx; lea 16(%rsp),%rax; mov %rax,(%rdi); mov %rsi,%rax; lea -16(%rax),%rsp; pop %rbx; ret"},
		{"the same in memory", false, "4c8d5424084c89174c8b16498d62f8c3",
			"lea 8(%rsp),%r10; mov %r10,(%rdi); mov (%rsi),%r10; lea -8(%r10),%rsp; ret"},
		{"pops from another stack", false, "4c8d5424084152488927488b26415a498d62f8c3",
			"lea 8(%rsp),%r10; push %r10; mov %rsp,(%rdi); mov (%rsi),%rsp; pop %r10; lea -8(%r10),%rsp; ret"},
		{"another address when it ends", false, prologue + "4989f2c9498d62f8c3",
			aligned + "mov %rsi,%r10; leave; lea -8(%r10),%rsp; ret"},
		{"what a call has left", false, prologue + "415affd0c9498d62f8c3",
			aligned + "pop %r10; call *%rax; leave; lea -8(%r10),%rsp; ret"},
		{"what an instruction of BMI has made", false, prologue + "c462c0f2d6c9498d62f8c3",
			aligned + "andn %rsi,%rdi,%r10; leave; lea -8(%r10),%rsp; ret"},
	} {
		b, err := hex.DecodeString(c.code)
		if err != nil {
			t.Fatal(err)
		}
		x := finderOf(amd64Machine{}, b, len(b))
		if _, ok := x.m.follower(x).follow(0); ok != c.ok {
			t.Errorf("%s: understood: %v; %s", c.name, ok, c.text)
		}
	}
}

// TestFollowReturns: functions of AArch64 are understood if the return address, wherever it has been, is in x30 when they
// return, and said to use it if they do anything else with it.
func TestFollowReturns(t *testing.T) {
	const (
		enter = "fd7bbea9" // stp x29, x30, [sp, #-32]!
		leave = "fd7bc2a8" // ldp x29, x30, [sp], #32
		call  = "00003fd6" // blr x0
		ret   = "c0035fd6"
	)
	for _, c := range []struct {
		name     string
		ok, uses bool
		code     string
		text     string
	}{
		{"a leaf", true, false, ret, "ret"},
		{"a frame", true, false, enter + call + leave + ret, "stp x29,x30,[sp,#-32]!; blr x0; ldp x29,x30,[sp],#32; ret"},
		{"what a call has left", false, false, enter + call + "ff830091" + ret, "as a frame, with add sp,sp,#32 in place of ldp"},
		{"no return after a call", true, false, call + call + "ffffff17", "blr x0; blr x0; b -4"},
		{"another value is restored", false, false, enter + call + "fd7b41a9" + "ff830091" + ret, "as a frame, with ldp x29,x30,[sp,#16]; add sp,sp,#32"},
		{"from another place", false, false, enter + call + "fe0b40f9" + "ff830091" + ret, "as a frame, with ldr x30,[sp,#16]; add sp,sp,#32"},
		{"the stack is not", false, false, enter + call + "fd7bc1a8" + ret, "as a frame, with ldp x29,x30,[sp],#16"},
		{"it is read", true, true, "e0031eaa" + ret, "mov x0,x30; ret"},
		{"where it is saved", true, true, enter + call + "e00740f9" + leave + ret, "as a frame, with ldr x0,[sp,#8]"},
		{"it is changed there", true, true, enter + call + "e00700f9" + leave + ret, "as a frame, with str x0,[sp,#8]"},
		{"it is stored elsewhere", true, true, "1e0000f9" + ret, "str x30,[x0]; ret"},
		{"x30 has something else", true, false, enter + call + "fe0300aa" + "c00340f9" + leave + ret, "as a frame, with mov x30,x0; ldr x0,[x30]"},
		{"and is stored", true, false, enter + "fe0300aa" + "1e0000f9" + leave + ret, "as a frame, with mov x30,x0; str x30,[x0]"},
		{"returns elsewhere", false, false, "20015fd6", "ret x9"},
		{"signed", true, false, "3f2303d5" + enter + call + leave + "bf2303d5" + ret, "paciasp; a frame; autiasp; ret"},
		{"signed, by one instruction", true, false, "3f2303d5" + enter + call + leave + "ff0b5fd6", "paciasp; a frame; retaa"},
		{"signed and not authenticated", false, false, "3f2303d5" + enter + call + leave + ret, "paciasp; a frame; ret"},
		{"authenticated and not signed", false, false, enter + call + leave + "ff0b5fd6", "a frame; retaa"},
		{"a large frame", true, false, enter + "0d0282d2" + "ff632dcb" + call + "0d0282d2" + "ff632d8b" + leave + ret,
			"as a frame, with mov x13,#4112; sub sp,sp,x13 and add sp,sp,x13"},
		{"of any size", true, false, enter + "fd030091" + "ff6321cb" + call + "bf030091" + leave + ret, "as a frame, with mov x29,sp; sub sp,sp,x1 and mov sp,x29"},
		{"of any size, without a frame pointer", false, false, enter + "ff6321cb" + call + leave + ret, "as a frame, with sub sp,sp,x1"},
		{"a switch", true, false, enter + "20001fd6" + call + "02000014" + call + leave + ret, "as a frame, with br x1; blr x0; b 1f; blr x0; 1:"},
		{"a jump to nowhere", false, false, enter + "20001fd6", "stp x29,x30,[sp,#-32]!; br x1"},
		{"a tail call", true, false, enter + call + leave + "20001fd6", "as a frame, with br x1 in place of ret"},
		{"a call that does not return", true, false, "600000b5" + call + "1f2003d5" + ret, "cbnz x0, 1f; blr x0; nop; 1: ret"},
	} {
		b, err := hex.DecodeString(c.code)
		if err != nil {
			t.Fatal(err)
		}
		x := finderOf(arm64Machine{}, b, len(b))
		if facts, ok := x.m.follower(x).follow(0); ok != c.ok || ok && facts&usesCaller != 0 != c.uses {
			t.Errorf("%s: understood: %v, uses the return address: %v; %s", c.name, ok, facts&usesCaller != 0, c.text)
		}
	}
}

// FuzzFollow: whatever the code, and wherever functions begin in it, it is followed to an end, and a function that is
// understood returns with the stack as it came.
func FuzzFollow(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3}, byte(6), false)                                            // push, mov, leave, ret
	f.Add([]byte{0x48, 0x83, 0xec, 0x18, 0x74, 0x02, 0xeb, 0xfa, 0x48, 0x83, 0xc4, 0x18, 0xc3}, byte(13), false) // a loop
	f.Add([]byte{0xe8, 1, 0, 0, 0, 0xc3, 0x53, 0xff, 0xe0, 0x5b, 0xc3}, byte(4), false)                          // a call, a jump
	f.Add([]byte("\xfd\x7b\xbe\xa9\x00\x00\x3f\xd6\xfd\x7b\xc2\xa8\xc0\x03\x5f\xd6"), byte(16), true)            // a frame, a call
	f.Add([]byte("\x60\x00\x00\xb5\x00\x00\x3f\xd6\x20\x00\x1f\xd6\xc0\x03\x5f\xd6"), byte(8), true)             // branches
	f.Fuzz(func(t *testing.T, b []byte, every byte, onARM64 bool) {
		if len(b) == 0 || len(b) > 1<<12 || every == 0 {
			return
		}
		m := machine(amd64Machine{})
		if onARM64 {
			m = arm64Machine{}
			every, b = (every+3)&^3, b[:len(b)&^3]
			if len(b) == 0 || every == 0 {
				return
			}
		}
		x := finderOf(m, b, int(every))
		for i := range x.funcs {
			if e := x.Entry(i); e.Refusal == "" && !e.Untabled {
				t.Errorf("function %d has unwind information", i)
			}
		}
		switch w := m.follower(x).(type) {
		case *amd64Follower:
			checkReturns(t, w, &w.following, func(b []byte) (bool, error) {
				in, err := amd64.Decode(b)
				return in.Op == amd64.Ret, err
			})
		case *arm64Follower:
			checkReturns(t, w, &w.following, func(b []byte) (bool, error) {
				in, err := arm64.Decode(b)
				return in.Word == 0xd65f03c0, err
			})
		}
		x.funcs, x.facts = nil, nil
		called, others := x.Unlisted()
		if len(called)+len(others) > len(b) {
			t.Errorf("%d and %d functions in %d bytes", len(called), len(others), len(b))
		}
	})
}

// checkReturns follows all functions, and looks at the ends of those that are understood.
func checkReturns[S frame[S]](t *testing.T, w follower, found *following[S], returns func([]byte) (bool, error)) {
	for i := range found.f.funcs {
		if _, ok := w.follow(i); !ok {
			continue
		}
		for at, s := range found.seen {
			if ret, err := returns(found.text.From(at)); err != nil || ret && !s.atEntry() {
				t.Errorf("%#x: %+v, %v", at, s, err)
			}
		}
	}
}
