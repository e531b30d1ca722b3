package patch_test

import (
	"testing"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// At every instruction of the copy of every system call of a C library, unwinders find the frame that they find at the
// original, 16 bytes farther away where the copy has pushed two registers.
func TestSyscallRowsARM64(t *testing.T) {
	image := read(t, onARM64.compile(t, "p.c", source, "-static"))
	f := parse(t, image)
	symbols, err := symbol.New(f)
	if err != nil {
		t.Fatal(err)
	}
	calls, err := record.Syscalls(f, symbols)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlan(image, patch.Options{Syscalls: &calls, NoFunctions: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	was, err := ehframe.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	patched := parse(t, out)
	places, index, moved := entriesOf(t, out, was), ehframe.NewIndex(was), 0
	for i := range p.Syscalls {
		s := &p.Syscalls[i]
		a, ok := index.Find(s.Addr)
		if !s.Moved() || !ok {
			continue
		}
		b, err := patched.Bytes(s.Addr, arm64.InstLen)
		if err != nil {
			t.Fatal(err)
		}
		in, err := arm64.Decode(b)
		if err != nil || in.Op != arm64.Jmp {
			t.Fatalf("%s at %#x: %v, %v", s.Name, s.Addr, in.Op, err)
		}
		to := in.Target(s.Addr)
		d, ok := places[to]
		if !ok || d.Size != arm64.SyscallLen {
			t.Fatalf("%s at %#x: nothing describes its copy at %#x", s.Name, s.Addr, to)
		}
		want := rowAt(t, &a, s.Addr)
		for k := range uint64(arm64.SyscallLen / arm64.InstLen) {
			row, here := rowAt(t, &d, to+k*arm64.InstLen), want
			pushed := k == 1 || k == 2 || k == 5 || k == 6 || k == 8
			if pushed && here.Reg == arm64.StackPointer {
				here.Off += 16
			}
			if row.Reg != here.Reg || row.Off != here.Off || (pushed || here.Moved) && !row.Moved {
				t.Errorf("%s: instruction %d of the copy has %+v, want %+v", s.Name, k, row, here)
			}
		}
		moved++
	}
	if moved < 100 {
		t.Errorf("%d system calls have been moved", moved)
	}
}
