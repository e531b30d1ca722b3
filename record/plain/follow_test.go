package plain

import (
	"debug/elf"
	"encoding/hex"
	"os"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record/code"
	"github.com/fentry-dev/fentry/symbol"
)

// installed are programs of this machine, of compilers of C, C++ and Rust. Not among them are those with functions in
// assembly, whose unwind tables are mostly right where a call can be, and only there.
var installed = []string{
	"/usr/bin/git", "/usr/bin/perl", "/usr/bin/python3.11", "/usr/bin/bash", "/usr/bin/cmake", "/usr/bin/rg",
	"/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
}

// finders calls test for each program of this machine.
func finders(t *testing.T, test func(t *testing.T, f *Finder)) {
	tried := 0
	for _, path := range installed {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f, err := elfio.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if f.Header.Machine != elf.EM_X86_64 {
			continue
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
		t.Run(path, func(t *testing.T) { test(t, x) })
	}
	if tried == 0 {
		t.Skip("none of the programs is installed")
	}
}

// TestFollow follows the functions of installed programs as if they had no unwind tables, and compares what is found with
// these: at each instruction the stack pointer and the frame pointer are where the tables say. Some of LLVM's say that
// something is on the stack still for an instruction or two behind the one that has taken it off.
func TestFollow(t *testing.T) {
	finders(t, func(t *testing.T, f *Finder) {
		w := f.m.follower(f).(*amd64Follower)
		var understood, functions, rows, wrong int
		for i := range f.funcs {
			d, ok := f.index.Find(f.funcs[i].Addr)
			if !ok || f.funcs[i].Part || d.PC != f.funcs[i].Addr || d.CIE.Signal || f.marks.get(d.PC)&(called|pointed) == 0 {
				continue
			}
			functions++
			if _, ok := w.follow(i); !ok {
				continue
			}
			understood++
			var fr frames
			fr.open(f.index, d.PC)
			for at, s := range w.seen {
				row, known := fr.at(at)
				if !known {
					continue
				}
				switch {
				case row.Reg == dwarfRSP && s.depth != row.Off,
					row.Reg == dwarfRBP && s.framed && s.rbp != row.Off:
					if wrong++; wrong*1000 > rows {
						t.Errorf("%s %#x at %#x: %+v, want %+v", f.funcs[i].Name, d.PC, at, s, *row)
					}
				case row.Reg == dwarfRSP || row.Reg == dwarfRBP:
					rows++
				}
			}
		}
		t.Logf("%d of %d functions understood, %d instructions right, %d wrong", understood, functions, rows, wrong)
		if understood*100 < functions*98 {
			t.Errorf("%d of %d functions understood", understood, functions)
		}
	})
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
func finderOf(b []byte, every int) *Finder {
	const base = 0x401000
	text := &code.Text{Regions: []code.Region{{Addr: base, Data: b, Name: ".text", Exact: true}}}
	x := &Finder{file: new(elfio.File), text: text, m: amd64Machine{}, fixed: true}
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
		x := finderOf(b, len(b))
		if _, ok := x.m.follower(x).follow(0); ok != c.ok {
			t.Errorf("%s: understood: %v; %s", c.name, ok, c.text)
		}
	}
}

// FuzzFollow: whatever the code, and wherever functions begin in it, it is followed to an end, and a function that is
// understood returns with the stack as it came.
func FuzzFollow(f *testing.F) {
	f.Add([]byte{0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3}, byte(6))                                            // push, mov, leave, ret
	f.Add([]byte{0x48, 0x83, 0xec, 0x18, 0x74, 0x02, 0xeb, 0xfa, 0x48, 0x83, 0xc4, 0x18, 0xc3}, byte(13)) // a loop
	f.Add([]byte{0xe8, 1, 0, 0, 0, 0xc3, 0x53, 0xff, 0xe0, 0x5b, 0xc3}, byte(4))                          // a call, a jump
	f.Fuzz(func(t *testing.T, b []byte, every byte) {
		if len(b) == 0 || len(b) > 1<<12 || every == 0 {
			return
		}
		x := finderOf(b, int(every))
		text := x.text
		for i := range x.funcs {
			if e := x.Entry(i); e.Refusal == "" && !e.Untabled {
				t.Errorf("function %d has unwind information", i)
			}
		}
		w := x.m.follower(x).(*amd64Follower)
		for i := range x.funcs {
			if _, ok := w.follow(i); !ok {
				continue
			}
			for at, s := range w.seen {
				if in, err := amd64.Decode(text.From(at)); err != nil || in.Op == amd64.Ret && !s.atEntry() {
					t.Errorf("%#x: %+v, %v", at, s, err)
				}
			}
		}
		x.funcs, x.facts = nil, nil
		called, others := x.Unlisted()
		if len(called)+len(others) > len(b) {
			t.Errorf("%d and %d functions in %d bytes", len(called), len(others), len(b))
		}
	})
}
