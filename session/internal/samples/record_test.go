//go:build linux

package samples

import (
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/session/internal/perf"
)

// made makes a record of the kernel's.
func made(typ uint32, body ...uint64) []byte {
	b := le.AppendUint32(nil, typ)
	b = le.AppendUint32(b, uint32(perf.Header+8*len(body))<<16)
	for _, w := range body {
		b = le.AppendUint64(b, w)
	}
	return b
}

// TestParse reads samples of both machines, and what else the kernel tells.
func TestParse(t *testing.T) {
	const task = 7 | 8<<32
	body := []uint64{task, 100, abi64}
	for i := range uint64(17) {
		body = append(body, 1000+i)
	}
	r, ok := parse(made(typeSample, append(slices.Clone(body), 16, 0x11, 0x22, 8)...), layouts["amd64"])
	if !ok || r.kind != sample || r.pid != 7 || r.tid != 8 || r.time != 100 || r.foreign {
		t.Fatalf("%v %+v", ok, r)
	}
	// rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, rip, r8, ...
	if r.regs.PC != 1008 || r.regs.Value[7] != 1007 || r.regs.Value[3] != 1001 || r.regs.Value[15] != 1016 || r.regs.Known != 1<<16-1 {
		t.Errorf("%+v", r.regs)
	}
	if !slices.Equal(r.stack, []byte{0x11, 0, 0, 0, 0, 0, 0, 0}) { // as much as could be read
		t.Errorf("stack %x", r.stack)
	}
	if r, ok = parse(made(typeSample, append(slices.Clone(body), 0)...), layouts["amd64"]); !ok || r.stack != nil {
		t.Errorf("no stack: %v %+v", ok, r)
	}
	body = []uint64{task, 100, abi64}
	for i := range uint64(33) {
		body = append(body, 1000+i)
	}
	if r, ok = parse(made(typeSample, append(body, 0)...), layouts["arm64"]); !ok || r.regs.PC != 1032 || r.regs.Value[31] != 1031 {
		t.Errorf("%v %+v", ok, r)
	}
	for _, tt := range []struct {
		b    []byte
		want record
	}{
		{made(typeSample, task, 100, abiNone, 0), record{}},
		{made(typeLost, 1, 5, task, 100), record{kind: lost, pid: 7, tid: 8, time: 100, count: 5}},
		{made(typeMmap, task, 1, 2, 3, 0x6f732e61, task, 100), record{kind: mapping, pid: 7, tid: 8, time: 100}},
		{made(typeExit, 9, 10, 200, task, 100), record{kind: ended, pid: 9, tid: 10, time: 200}},
		{made(typeExit, 9, task, 100), record{}},
		{made(77, task, 100), record{}},
	} {
		r, ok := parse(tt.b, layouts["amd64"])
		if ok != (tt.want.kind != 0) || ok && (r.kind != tt.want.kind || r.pid != tt.want.pid || r.tid != tt.want.tid ||
			r.time != tt.want.time || r.count != tt.want.count) {
			t.Errorf("%x: %v %+v, want %+v", tt.b, ok, r, tt.want)
		}
	}
}

// FuzzParse: whatever a record is, it is read without a panic, and a stack is a part of it.
func FuzzParse(f *testing.F) {
	f.Add(made(typeSample, 1, 2, abi64, 3, 4))
	f.Add(made(typeLost, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range layouts {
			if r, _ := parse(b, m); len(r.stack) > len(b) {
				t.Errorf("%d bytes of stack in %d", len(r.stack), len(b))
			}
		}
	})
}
