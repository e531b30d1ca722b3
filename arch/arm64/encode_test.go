package arm64

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// Each encoder: what is constructed, the words, the text.
var encodings = []struct {
	name   string
	encode func([]byte) ([]byte, error)
	words  []uint32
	text   string
}{
	{"call", func(b []byte) ([]byte, error) { return AppendCall(b, 0x401000, 0x402000) }, []uint32{0x94000400}, "bl 0x402000"},
	{"call back", func(b []byte) ([]byte, error) { return AppendCall(b, 0x401000, 0x400000) }, []uint32{0x97fffc00}, "bl 0x400000"},
	{"jump", func(b []byte) ([]byte, error) { return AppendJump(b, 0x401000, 0x401000) }, []uint32{0x14000000}, "b 0x401000"},
	{"adrp", func(b []byte) ([]byte, error) { return AppendAdrp(b, 16, 0x401ffc, 0x402004) }, []uint32{0xb0000010}, "adrp x16, 0x402000"},
	{"adrp back", func(b []byte) ([]byte, error) { return AppendAdrp(b, 3, 0x401000, 0x3fffff) }, []uint32{0xd0ffffe3}, "adrp x3, 0x3ff000"},
	{"address", func(b []byte) ([]byte, error) { return AppendAddr(b, 9, 0x401000, 0x412345) }, []uint32{0xb0000089, 0x910d1529},
		"adrp x9, 0x412000; add x9, x9, #0x345"},
	{"veneer", func(b []byte) ([]byte, error) { return AppendVeneer(b, 0x401000, 0x4040_1238) }, []uint32{0x90200010, 0x9108e210, 0xd61f0200},
		"adrp x16, 0x40401000; add x16, x16, #0x238; br x16"},
	{"landing", func(b []byte) ([]byte, error) { return AppendLanding(b, 0x401000, 0x401008) }, []uint32{0xd503245f, 0x14000001}, "bti c; b 0x401008"},
	{"call site", func(b []byte) ([]byte, error) { return AppendCallSite(b, 12, 0x401000, 0x402000) }, []uint32{0x94000400, WordNop, WordNop}, "bl 0x402000; nop; nop"},
	{"jump site", func(b []byte) ([]byte, error) { return AppendJumpSite(b, 8, 0x401000, 0x402000) }, []uint32{0x14000400, WordNop}, "b 0x402000; nop"},
	{"named", func(b []byte) ([]byte, error) {
		return append(b, code(WordNop, WordBti, WordBtiC, WordBtiJ, WordBtiJC, WordPaciasp, WordRet, WordRetX9, WordMovX9LR)...), nil
	}, []uint32{0xd503201f, 0xd503241f, 0xd503245f, 0xd503249f, 0xd50324df, 0xd503233f, 0xd65f03c0, 0xd65f0120, 0xaa1e03e9},
		"nop; bti; bti c; bti j; bti jc; paciasp; ret; ret x9; mov x9, x30"},
	{"immediates", func(b []byte) ([]byte, error) {
		return append(b, code(movz(17, 0xffff), movkHigh(17, 0x8001), movReg(16, 30), addImm(16, 29, 0xff0), addImm(16, 16, 3)|1<<22)...), nil
	}, []uint32{0x529ffff1, 0x72b00031, 0xaa1e03f0, 0x913fc3b0, 0x91400e10},
		"mov w17, #0xffff // #65535; movk w17, #0x8001, lsl #16; mov x16, x30; add x16, x29, #0xff0; add x16, x16, #0x3, lsl #12"},
}

func TestEncode(t *testing.T) {
	for _, tt := range encodings {
		got, err := tt.encode([]byte{0xaa})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if want := append([]byte{0xaa}, code(tt.words...)...); !bytes.Equal(got, want) {
			t.Errorf("%s: % x, want % x", tt.name, got, want)
		}
	}
}

func TestEncodeText(t *testing.T) {
	for _, tt := range encodings {
		if got := disassemble(t, code(tt.words...), 0x401000); got != tt.text {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.text)
		}
	}
}

func TestEncodeRange(t *testing.T) {
	const from = 0x7f_0000_1000
	for _, tt := range []struct {
		name     string
		inst     string
		encode   func([]byte, uint64, uint64) ([]byte, error)
		min, max int64 // the farthest targets
		step     int64
		bits     int
	}{
		{"bl", "bl", AppendCall, BranchMin, BranchMax, 4, 28},
		{"b", "b", AppendJump, BranchMin, BranchMax, 4, 28},
		{"adrp", "adrp", func(b []byte, from, to uint64) ([]byte, error) { return AppendAdrp(b, 1, from, to) }, -1 << 32, 1<<32 - 1, 1, 33},
		{"veneer", "adrp", AppendVeneer, -1 << 32, 1<<32 - 4, 4, 33},
		{"landing", "b", AppendLanding, BranchMin + 4, BranchMax + 4, 4, 28},
	} {
		for _, d := range []int64{tt.min, tt.max} {
			b, err := tt.encode(nil, from, from+uint64(d))
			if err != nil {
				t.Errorf("%s by %#x: %v", tt.name, d, err)
				continue
			}
			last, at := b[len(b)-InstLen:], uint64(from+len(b)-InstLen)
			target := DecodeWord(word32(last)).Target(at)
			if tt.name == "veneer" {
				target, _ = VeneerTarget(b, from)
			}
			if want := from + uint64(d); target != want && !(tt.name == "adrp" && target == want&^pageMask) {
				t.Errorf("%s by %#x goes to %#x", tt.name, d, target)
			}
		}
		for _, d := range []int64{tt.min - tt.step, tt.max + tt.step, 1 << 62} {
			dst := []byte{1, 2, 3}
			b, err := tt.encode(dst, from, from+uint64(d))
			var e *RangeError
			if !errors.As(err, &e) || e.To != from+uint64(d) || e.Bits != tt.bits || e.Inst != tt.inst {
				t.Errorf("%s by %#x: %v, want a RangeError", tt.name, d, err)
			}
			if !bytes.Equal(b, dst) {
				t.Errorf("%s by %#x: % x left behind", tt.name, d, b)
			}
		}
		if tt.name == "adrp" {
			continue
		}
		for _, off := range [][2]uint64{{0, 2}, {1, 0}} {
			if b, err := tt.encode(nil, from+off[0], from+off[1]); err == nil || len(b) != 0 || !strings.Contains(err.Error(), "multiples of 4") {
				t.Errorf("%s between %v: % x, %v", tt.name, off, b, err)
			}
		}
	}
	_, err := AppendCall(nil, 0x401000, 0x1_0040_1000)
	if want := "bl at 0x401000 cannot reach 0x100401000: displacement 0x100000000 does not fit in 28 bits"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, n := range []int{-4, 0, 3, 6} {
		for _, f := range []func([]byte, int, uint64, uint64) ([]byte, error){AppendCallSite, AppendJumpSite} {
			if b, err := f(nil, n, 0x401000, 0x402000); err == nil || len(b) != 0 {
				t.Errorf("a site of %d bytes: % x, %v", n, b, err)
			}
		}
	}
}

func word32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func TestNops(t *testing.T) {
	for _, tt := range []struct{ n, len int }{{0, 0}, {-4, 0}, {3, 0}, {4, 4}, {8, 8}, {11, 8}} {
		b := AppendNops([]byte{1}, tt.n)
		if len(b) != 1+tt.len || IsNops(b[1:]) != tt.len {
			t.Errorf("AppendNops of %d: % x", tt.n, b)
		}
	}
	for _, tt := range []struct {
		b        []byte
		n, insts int
	}{
		{nil, 0, 0}, {code(WordNop)[:3], 0, 0}, {code(WordNop, WordNop, WordRet), 8, 2},
		{code(WordBtiC, WordNop), 0, 0}, {code(0xd503203f), 0, 0}, {append(code(WordNop), 0x1f, 0x20), 4, 1},
	} {
		if n, insts := CountNops(tt.b); n != tt.n || insts != tt.insts {
			t.Errorf("% x: %d bytes, %d instructions, want %d, %d", tt.b, n, insts, tt.n, tt.insts)
		}
	}
}

// The limits of branches, and where veneers take over.
func TestRoute(t *testing.T) {
	const from = 0x4_0000_0000
	fwd := func(d int64) uint64 { return from + uint64(d) }
	for _, tt := range []struct {
		d       int64
		reaches bool
	}{
		{0, true}, {BranchMax, true}, {BranchMax + 4, false}, {1 << 27, false}, {BranchMin, true}, {BranchMin - 4, false}, {1 << 62, false}, {-1 << 63, false},
	} {
		if got := Reaches(from, fwd(tt.d)); got != tt.reaches {
			t.Errorf("Reaches by %#x: %v", tt.d, got)
		}
		v := &Veneers{Addr: fwd(0x1000), Size: 2 * VeneerLen}
		to, err := v.Route(from, fwd(tt.d))
		switch {
		case tt.reaches:
			if err != nil || to != fwd(tt.d) || v.Used() != 0 {
				t.Errorf("Route by %#x: %#x, %v, %d bytes of veneers", tt.d, to, err, v.Used())
			}
		case tt.d >= 1<<62 || tt.d < -1<<62:
			var e *RangeError
			if !errors.As(err, &e) || e.Inst != "adrp" || v.Used() != 0 {
				t.Errorf("Route by %#x: %#x, %v", tt.d, to, err)
			}
		default:
			if err != nil || to != v.Addr || v.Used() != VeneerLen {
				t.Errorf("Route by %#x: %#x, %v", tt.d, to, err)
			}
		}
		if _, err := (*Veneers)(nil).Route(from, fwd(tt.d)); (err == nil) != tt.reaches {
			t.Errorf("Route by %#x without an island: %v", tt.d, err)
		}
	}

	v := &Veneers{Addr: fwd(BranchMax), Size: 3*VeneerLen - 1}
	far, farther := fwd(1<<28), fwd(-1<<28)
	for _, tt := range []struct{ from, to, want uint64 }{
		{from, far, v.Addr}, {from + VeneerLen, farther, v.Addr + VeneerLen}, {from + 4, far, v.Addr}, {v.Addr, v.Addr + BranchMax, v.Addr + BranchMax},
	} {
		got, err := v.Route(tt.from, tt.to)
		if got != tt.want || (err != nil) != (tt.want == 0) {
			t.Errorf("Route %#x to %#x: %#x, %v, want %#x", tt.from, tt.to, got, err, tt.want)
		}
	}
	var e *RangeError
	if _, err := v.Route(from-4, far); !errors.As(err, &e) || e.To != v.Addr {
		t.Errorf("an island one word too far: %v", err)
	}
	if _, err := v.Route(from+0x100, far+0x100); err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("a full island: %v", err)
	}
	b, err := v.Append([]byte{1})
	if err != nil || len(b) != 1+v.Used() {
		t.Fatalf("Append: %d bytes, %v", len(b), err)
	}
	for k, want := range []uint64{far, farther} {
		if got, ok := VeneerTarget(b[1+k*VeneerLen:], v.Addr+uint64(k*VeneerLen)); !ok || got != want {
			t.Errorf("veneer %d goes to %#x, %v", k, got, ok)
		}
	}
	for _, b := range [][]byte{nil, b[1:12], code(0xb0000011, 0x91000210, 0xd61f0200), code(0xb0000010, 0x91000211, 0xd61f0200), code(0xb0000010, 0x91000210, 0xd61f0220)} {
		if to, ok := VeneerTarget(b, from); ok {
			t.Errorf("% x is said to go to %#x", b, to)
		}
	}
}
