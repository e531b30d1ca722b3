package arch_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
)

// image is a memory that counts writes and fails at chosen addresses.
type image struct {
	arch.Bytes
	noRead, noWrite uint64
	writes          int
	broken          bool // after the first failure nothing can be written
}

func (m *image) ReadAt(p []byte, addr uint64) error {
	if addr == m.noRead {
		return errors.New("no page")
	}
	return m.Bytes.ReadAt(p, addr)
}

func (m *image) WriteAt(p []byte, addr uint64) error {
	if addr == m.noWrite {
		m.broken = m.broken || m.noRead == 1
		return errors.New("read-only page")
	}
	if m.broken {
		return errors.New("memory is gone")
	}
	m.writes++
	return m.Bytes.WriteAt(p, addr)
}

const base, target = 0x401000, 0x402000

// sites returns an image of n nop sites, 16 bytes apart, and a batch that makes calls of them, last first.
func sites(n int) (*image, *arch.Batch) {
	m := &image{Bytes: arch.Bytes{Addr: base}}
	b := &arch.Batch{Ftrace: amd64.Ftrace{}}
	for i := range n {
		m.Data = append(amd64.AppendNops(m.Data, 5), bytes.Repeat([]byte{0xcc}, 11)...)
		b.Add(arch.Change{Action: arch.Call, New: target,
			Site: arch.Site{Addr: base + uint64(n-1-i)*16, Len: 5, Name: fmt.Sprintf("f%d", n-1-i)}})
	}
	return m, b
}

func TestBatch(t *testing.T) {
	m, b := sites(10)
	edits, err := b.Verify(m)
	if err != nil || len(edits) != 10 || m.writes != 0 {
		t.Fatalf("Verify: %d edits, %v, %d writes", len(edits), err, m.writes)
	}
	for i, e := range edits {
		if e.Addr != base+uint64(i)*16 || string(e.Old) != "\x0f\x1f\x44\x00\x00" || e.New[0] != 0xe8 || e.Func != fmt.Sprintf("f%d", i) {
			t.Errorf("edit %d: %+v", i, e)
		}
	}
	if err := b.Run(m); err != nil || m.writes != 10 {
		t.Fatalf("Run: %v, %d writes", err, m.writes)
	}
	for i := range 10 {
		if in, err := amd64.Decode(m.Data[i*16:]); err != nil || in.Op != amd64.Call || in.Target(base+uint64(i)*16) != target {
			t.Errorf("site %d: % x", i, m.Data[i*16:i*16+5])
		}
	}
}

func TestBatchVerifiesAllBeforeWriting(t *testing.T) {
	m, b := sites(10)
	copy(m.Data[9*16:], "\x55\x48\x89\xe5\x90") // the last one in memory
	before := bytes.Clone(m.Data)
	err := b.Run(m)
	var bug *arch.Bug
	if !errors.As(err, &bug) || bug.Class != arch.Mismatch || bug.Site.Name != "f9" {
		t.Errorf("got %v", err)
	}
	if m.writes != 0 || !bytes.Equal(m.Data, before) {
		t.Errorf("%d writes", m.writes)
	}
	m, b = sites(10)
	m.noRead = base + 3*16
	err = b.Run(m)
	if !errors.As(err, &bug) || bug.Class != arch.Fault || bug.Site.Name != "f3" || m.writes != 0 {
		t.Errorf("got %v, %d writes", err, m.writes)
	}
}

func TestBatchTakesBack(t *testing.T) {
	m, b := sites(10)
	before := bytes.Clone(m.Data)
	m.noWrite = base + 7*16
	err := b.Run(m)
	var bug *arch.Bug
	if !errors.As(err, &bug) || bug.Class != arch.WriteFault || bug.Site.Name != "f7" {
		t.Errorf("got %v", err)
	}
	if m.writes != 14 || !bytes.Equal(m.Data, before) {
		t.Errorf("%d writes, not the old bytes again", m.writes)
	}
	m, b = sites(3)
	m.noWrite, m.noRead = base+2*16, 1
	err = b.Run(m)
	if err == nil || strings.Count(err.Error(), "not restored") != 2 || !strings.Contains(err.Error(), "f0") {
		t.Errorf("got %v", err)
	}
}

func TestBatchRefusesOverlap(t *testing.T) {
	m, b := sites(2)
	b.Add(b.Changes[0])
	if err := b.Run(m); err == nil || !strings.Contains(err.Error(), "overlaps") || m.writes != 0 {
		t.Errorf("one site twice: %v, %d writes", err, m.writes)
	}
	m = &image{Bytes: arch.Bytes{Addr: base, Data: bytes.Repeat([]byte{0x90}, 16)}}
	b = &arch.Batch{Ftrace: amd64.Ftrace{}}
	b.Add(arch.Change{Action: arch.Call, Site: arch.Site{Addr: base + 4, Len: 5}, New: target})
	b.Add(arch.Change{Action: arch.Call, Site: arch.Site{Addr: base, Len: 5}, New: target})
	if err := b.Run(m); err == nil || !strings.Contains(err.Error(), "overlaps") || m.writes != 0 {
		t.Errorf("overlapping sites: %v, %d writes", err, m.writes)
	}
}

func TestBugText(t *testing.T) {
	m := &image{Bytes: arch.Bytes{Addr: base, Data: []byte("\x55\x48\x89\xe5\x90")}}
	site := arch.Site{Addr: base, Len: 5, Name: "main"}
	var f amd64.Ftrace

	for _, tt := range []struct {
		err    error
		line   string
		report string
	}{
		{
			arch.MakeCall(f, m, site, target),
			"0x401000 (main): setting ftrace call site to call ftrace function: EINVAL: actual 55:48:89:e5:90, expected 0f:1f:44:00:00",
			`------------[ ftrace bug ]------------
ftrace failed to modify
[<0000000000401000>] main
 actual:   55:48:89:e5:90
 expected: 0f:1f:44:00:00
Setting ftrace call site to call ftrace function
 expected tramp: 402000`,
		},
		{
			arch.MakeNop(f, m, arch.Site{Addr: base, Len: 6}, target),
			"0x401000: setting ftrace call site to NOP: EFAULT: 6 bytes at 0x401000 are not within 0x401000 to 0x401005",
			`------------[ ftrace bug ]------------
ftrace faulted on modifying
[<0000000000401000>] ?
 cause:    6 bytes at 0x401000 are not within 0x401000 to 0x401005
Setting ftrace call site to NOP
 expected tramp: 402000`,
		},
		{
			arch.ModifyCall(f, &image{Bytes: arch.Bytes{Addr: base, Data: []byte("\xe8\xfb\x0f\x00\x00")}, noWrite: base}, site, target, base),
			"0x401000 (main): updating ftrace call site to call a different ftrace function: EPERM: read-only page",
			`------------[ ftrace bug ]------------
ftrace faulted on writing
[<0000000000401000>] main
 cause:    read-only page
Updating ftrace call site to call a different ftrace function
 expected tramp: 401000`,
		},
	} {
		if tt.err == nil {
			t.Errorf("no error, want %q", tt.line)
			continue
		}
		if got := tt.err.Error(); got != tt.line {
			t.Errorf("Error:\n got %s\nwant %s", got, tt.line)
		}
		for _, verb := range []string{"%v", "%s"} {
			if got := fmt.Sprintf(verb, tt.err); got != tt.line {
				t.Errorf("%s: got %s", verb, got)
			}
		}
		if got := fmt.Sprintf("%+v", tt.err); got != tt.report {
			t.Errorf("%%+v:\n got %s\nwant %s", got, tt.report)
		}
	}
	if got, want := fmt.Sprintf("%q", &arch.Bug{Class: arch.Fault, Action: arch.Init}), `"0x0: initializing ftrace call sites: EFAULT"`; got != want {
		t.Errorf("%%q: %s, want %s", got, want)
	}
}

func TestBytes(t *testing.T) {
	b := arch.Bytes{Addr: ^uint64(0) - 3, Data: []byte{1, 2, 3, 4}} // the last four bytes of the address space
	p := make([]byte, 2)
	if err := b.ReadAt(p, ^uint64(0)-1); err != nil || p[0] != 3 || p[1] != 4 {
		t.Errorf("%v, %v", p, err)
	}
	for _, addr := range []uint64{0, 1, ^uint64(0) - 4, ^uint64(0)} {
		if err := b.WriteAt(p, addr); err == nil {
			t.Errorf("wrote 2 bytes at %#x", addr)
		}
	}
	if err := b.ReadAt(nil, 0); err != nil { // one past the end
		t.Errorf("nothing at the end: %v", err)
	}
}
