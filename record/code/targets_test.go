package code

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/cost"
)

// branches is the plain reading of code: every branch of it, and where instructions begin. ok is false if something in
// it is no instruction.
func branches(m elf.Machine, b []byte, addr uint64) (out [][2]uint64, starts []uint64, ok bool) {
	for at := 0; at < len(b); {
		pc := addr + uint64(at)
		starts = append(starts, pc)
		switch m {
		case elf.EM_X86_64:
			in, err := amd64.Decode(b[at:])
			if err == amd64.ErrTruncated {
				return out, starts, true
			}
			if err != nil {
				return out, starts, false
			}
			if in.PCRel == amd64.PCRelBranch {
				out = append(out, [2]uint64{pc, in.Target(pc)})
			}
			at += in.Len
		default:
			in, err := arm64.Decode(b[at:])
			if err != nil {
				return out, starts, true
			}
			if in.PCRel == arm64.PCRelBranch {
				out = append(out, [2]uint64{pc, in.Target(pc)})
			}
			at += in.Len
		}
	}
	return out, starts, true
}

// wanted is which of the branches go into places, by asking each place.
func wanted(list [][2]uint64, places []Place) (out []uint64) {
	for _, br := range list {
		for _, p := range places {
			inside := br[1] >= p.Lo && br[1] < p.Hi && (br[1] > p.Lo || !p.Entry)
			if inside && (br[0] < p.Lo || br[0] >= p.Hi) {
				out = append(out, br[1])
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestTargets(t *testing.T) {
	const addr = 0x1000
	x86 := []byte{
		0x90, 0x90, 0x90, 0x90, 0x90, // 0: the place
		0xeb, 0xf9, // 5: jmp 0
		0x75, 0xf9, // 7: jne 2
		0xe8, 0xf5, 0xff, 0xff, 0xff, // 9: call 3
		0x0f, 0x84, 0x00, 0x00, 0x00, 0x00, // 14: je 20
		0xc3, // 20: ret
	}
	word := binary.LittleEndian.AppendUint32
	var a64 []byte
	for _, w := range []uint32{
		0xd503201f, 0xd503201f, 0xd503201f, // 0: nops, the place
		0x17fffffd, // 12: b 0
		0x54ffffa0, // 16: b.eq 4
		0x97fffffd, // 20: bl 8
		0xd65f03c0, // 24: ret
	} {
		a64 = word(a64, w)
	}
	for _, tt := range []struct {
		name   string
		m      elf.Machine
		b      []byte
		places []Place
		want   []uint64
	}{
		{"a site", elf.EM_X86_64, x86, []Place{{addr, addr + 5, true}}, []uint64{addr + 2, addr + 3}},
		{"its first byte", elf.EM_X86_64, x86, []Place{{addr, addr + 5, false}}, []uint64{addr, addr + 2, addr + 3}},
		{"branches from the place", elf.EM_X86_64, x86, []Place{{addr, addr + 9, false}}, []uint64{addr + 3}},
		{"two places", elf.EM_X86_64, x86, []Place{{addr, addr + 3, true}, {addr + 20, addr + 21, false}},
			[]uint64{addr + 2, addr + 20}},
		{"a place elsewhere", elf.EM_X86_64, x86[7:], []Place{{addr - 7, addr - 2, true}}, []uint64{addr - 5, addr - 4}},
		{"no instruction behind a suspect", elf.EM_X86_64, []byte{0x90, 0x90, 0x06, 0xeb, 0xfb},
			[]Place{{addr, addr + 2, false}}, []uint64{addr}},
		{"no instruction, two places", elf.EM_X86_64, append(x86[:len(x86):len(x86)], 0x06),
			[]Place{{addr, addr + 3, true}, {addr + 20, addr + 21, false}}, []uint64{addr + 1, addr + 2, addr + 20}},
		{"a site", elf.EM_AARCH64, a64, []Place{{addr, addr + 12, true}}, []uint64{addr + 4, addr + 8}},
		{"its first word", elf.EM_AARCH64, a64, []Place{{addr, addr + 12, false}}, []uint64{addr, addr + 4, addr + 8}},
		{"two places", elf.EM_AARCH64, a64, []Place{{addr, addr + 8, true}, {addr + 8, addr + 12, false}},
			[]uint64{addr + 4, addr + 8}},
		{"none", elf.EM_AARCH64, a64, nil, nil},
	} {
		ts := NewTargets(MachineOf(tt.m))
		ts.Scan(tt.b, addr, tt.places)
		if got := all(ts); !slices.Equal(got, tt.want) {
			t.Errorf("%v, %s: %#x, want %#x", tt.m, tt.name, got, tt.want)
		}
	}
}

// all asks for one target after another.
func all(ts *Targets) (out []uint64) {
	for lo := uint64(0); ; {
		a, ok := ts.Lowest(lo, ^uint64(0))
		if !ok {
			return out
		}
		out, lo = append(out, a), a+1
	}
}

// TestScanAll reads code of several pieces, with branches between them.
func TestScanAll(t *testing.T) {
	const words = 3 * scanPiece / arm64.InstLen
	var b []byte
	for k := range words {
		w := uint32(0xd503201f) // nop
		if k%1000 == 7 {        // b, backwards and forwards
			w = 0x14000000 | uint32(k*7919%words-k)&0x3ffffff
		}
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	text := &Text{Regions: []Region{{Addr: 0x1000, Data: b[:len(b)/2]},
		{Addr: 0x1000 + uint64(len(b)/2), Data: b[len(b)/2:]}}}
	var places []Place
	for a := uint64(0x1000); a < 0x1000+uint64(len(b)); a += 256 {
		places = append(places, Place{a, a + 64, a%512 == 0})
	}
	list, _, _ := branches(elf.EM_AARCH64, b, 0x1000)
	ts := NewTargets(MachineOf(elf.EM_AARCH64))
	ts.ScanAll(text, places)
	want := wanted(list, places)
	if got := all(ts); !slices.Equal(got, want) || len(want) < 100 {
		t.Errorf("%d targets, want %d", len(got), len(want))
	}
}

// FuzzTargets compares what is found with the plain reading, and for one place in x86 code, where most is not decoded,
// with what is found when everything is.
func FuzzTargets(f *testing.F) {
	f.Add([]byte{0x90, 0x90, 0x90, 0x90, 0x90, 0x75, 0xfb, 0xe9, 0xf5, 0xff, 0xff, 0xff}, uint16(0), uint8(5), true, false)
	f.Add([]byte{0x1f, 0x20, 0x03, 0xd5, 0x1f, 0x20, 0x03, 0xd5, 0xff, 0xff, 0xff, 0x17}, uint16(0), uint8(8), false, true)
	f.Fuzz(func(t *testing.T, b []byte, at uint16, size uint8, entry, arm bool) {
		m := elf.EM_X86_64
		if arm {
			m = elf.EM_AARCH64
		}
		const addr = 0x40_0000
		list, starts, clean := branches(m, b, addr)
		lo := addr + uint64(at)
		if i, ok := slices.BinarySearch(starts, lo); !ok && i > 0 {
			lo = starts[i-1]
		}
		places := []Place{{lo, lo + uint64(size), entry}}
		want := wanted(list, places)
		one, two := NewTargets(MachineOf(m)), NewTargets(MachineOf(m))
		cost.Check(t, len(b), 64, func() { one.Scan(b, addr, places) })
		far := addr + uint64(len(b)) + 1<<40 // where no branch goes
		two.Scan(b, addr, append(places, Place{far, far + 1, false}))
		got, whole := all(one), all(two)
		if clean {
			if !slices.Equal(got, want) || !slices.Equal(whole, want) {
				t.Fatalf("%#x, decoded whole %#x, want %#x", got, whole, want)
			}
			return
		}
		for _, a := range want {
			if !slices.Contains(whole, a) {
				t.Fatalf("decoded whole %#x, want %#x", whole, want)
			}
		}
		if size > 1 && len(got) > 0 && lo+uint64(size) <= addr+uint64(len(b)) && len(whole) == 0 {
			t.Fatalf("%#x, but none when everything is decoded", got)
		}
	})
}
