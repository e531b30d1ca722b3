package arm64

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// evaluate runs a DWARF expression of the operators this package uses, with cfa on
// the stack. Memory is what read has; registers what regs have.
func evaluate(t *testing.T, e []byte, cfa uint64, regs map[byte]uint64, read func(uint64) uint64) uint64 {
	t.Helper()
	stack := []uint64{cfa}
	pop := func() uint64 {
		if len(stack) == 0 {
			t.Fatalf("% x: nothing on the stack", e)
		}
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		return v
	}
	push := func(v uint64) { stack = append(stack, v) }
	truth := func(b bool) {
		if b {
			push(1)
		} else {
			push(0)
		}
	}
	for i := 0; i < len(e); {
		op := e[i]
		i++
		uleb := func() uint64 {
			v, n := binary.Uvarint(e[i:])
			i += n
			return v
		}
		switch {
		case op >= opLit0 && op < opLit0+32:
			push(uint64(op - opLit0))
			continue
		case op >= opBreg0 && op < opBreg0+32:
			push(regs[op-opBreg0] + uleb())
			continue
		}
		switch op {
		case opConst1u:
			push(uint64(e[i]))
			i++
		case opConst1s:
			push(uint64(int64(int8(e[i]))))
			i++
		case opConst4u:
			push(uint64(binary.LittleEndian.Uint32(e[i:])))
			i += 4
		case opConst8u:
			push(binary.LittleEndian.Uint64(e[i:]))
			i += 8
		case opConstu:
			push(uleb())
		case opPlusUconst:
			push(pop() + uleb())
		case opDeref:
			push(read(pop()))
		case opDerefSize:
			push(read(pop()) & (1<<(8*e[i]) - 1))
			i++
		case opSkip:
			i += 2 + int(int16(binary.LittleEndian.Uint16(e[i:])))
		case opDup:
			v := pop()
			push(v)
			push(v)
		case opOver:
			push(stack[len(stack)-2])
		case opDrop:
			pop()
		case opSwap:
			a, b := pop(), pop()
			push(a)
			push(b)
		case opBra:
			d := int(int16(binary.LittleEndian.Uint16(e[i:])))
			i += 2
			if pop() != 0 {
				i += d
			}
		default:
			b, a := pop(), pop()
			switch op {
			case opAnd:
				push(a & b)
			case opOr:
				push(a | b)
			case opMinus:
				push(a - b)
			case opMul:
				push(a * b)
			case opShl:
				push(a << b)
			case opShr:
				push(a >> b)
			case opXor:
				push(a ^ b)
			case opEq:
				truth(a == b)
			case opNe:
				truth(a != b)
			case opGt:
				truth(int64(a) > int64(b))
			default:
				t.Fatalf("% x: operator %#x", e, op)
			}
		}
	}
	return pop()
}

// The expression of the shadow is the shadow.
func TestShadowExpression(t *testing.T) {
	shadows := []Shadow{AnyShadow}
	for _, bits := range []int{48, 47, 42, 39} {
		s, err := ShadowFor(bits)
		if err != nil {
			t.Fatal(err)
		}
		shadows = append(shadows, s)
	}
	for _, s := range shadows {
		for _, a := range []uint64{0xffff_ffff_fff8, 0x7fff_ffff_fff8, 0x3ff_ffff_fff8, 0x7f_ffff_fff8, 0x40_0080_0000, 0x400_0000_0000, 0x10000} {
			if got := evaluate(t, s.expr(), a, nil, nil); got != s.Of(a) {
				t.Errorf("%v: %#x: %#x, want %#x", s, a, got, s.Of(a))
			}
			// The thunk's rules: CFA is odd, the slot 8 below it.
			h := hidden(s)
			c := int(h[1])
			for _, tt := range []struct{ ret, code, odd uint64 }{
				{0x7_7000, 0xd4000001_d2801168, 0}, // mov x8, #139; svc #0
				{0x7_7004, 0xd4000001_d2801168, 0},
				{0x7_7004, 0xd4000001_d2801169, 1},
				{0x7_7004, 0xd4000021_d2801168, 1},
				{0, 0, 1},
				{0xffff, 0, 1},
			} {
				got := evaluate(t, h[2:2+c], 0, map[byte]uint64{31: a + 8}, func(at uint64) uint64 {
					switch at {
					case s.Of(a):
						return tt.ret
					case tt.ret, tt.ret + 4:
						if tt.ret >= lowestCode {
							return tt.code >> (8 * (at - tt.ret))
						}
					}
					t.Errorf("%v: %#x is read", s, at)
					return 0
				})
				if h[0] != dwDefCFAExpr || got != a+8+tt.odd {
					t.Errorf("%v: %#x, %#x: CFA is %#x", s, a, tt, got)
				}
			}
			h = h[2+c:]
			n := int(h[2])
			if got := evaluate(t, h[3:3+n], a+9, nil, nil); h[0] != dwExpression || got != s.Of(a) {
				t.Errorf("%v: %#x: rule for x30 gives %#x, want %#x", s, a, got, s.Of(a))
			}
			if got := evaluate(t, h[3+n+3:], a+9, nil, nil); got != a+8 {
				t.Errorf("%v: rule for sp gives %#x, want %#x", s, got, a+8)
			}
		}
	}
}

// The rule for callers, for addresses of all kinds and at all places.
func TestCallerRule(t *testing.T) {
	const cfa, ret, caller = 0xffff_1234_5670, 0xaaaa_0000_0024, 0xaaaa_1111_2224
	th := someThunk(arch.ThunkGraph)
	b := make([]byte, BackSize)
	if err := th.EncodeBack(b); err != nil {
		t.Fatal(err)
	}
	c := Callers{AnyShadow}
	for _, tt := range []struct {
		text  string
		value uint64 // what the function has for its return address
		code  []byte // at ret
		want  uint64
	}{
		{"a thunk's", ret, b[ThunkRet:], caller},
		{"another's", ret, code(0xaa0003f3, 0x94000000, 0xd2800000, WordRet), ret},
		{"almost a thunk's: a compiler's", ret, code(0x52800011, 0x72b00011, 0x14000000), ret},
		{"almost a thunk's: no end", ret, code(0xd2a00011, 0xf2800011, 0x14000000), ret},
		{"almost a thunk's: one instruction", ret, code(0xd2b00011, 0xd503201f, 0x14000000), ret},
		{"not aligned like a thunk's", ret + 4, nil, ret + 4},
		{"none", 0, nil, 0},
		{"a small number", 36, nil, 36},
		{"a large number", 1<<63 | 36, nil, 1<<63 | 36},
	} {
		for _, place := range []struct {
			name string
			insn []byte
			addr uint64
		}{
			{"x30", nil, 0},
			{"frame", []byte{dwOffset | 30, 3}, cfa - 24},
			{"frame, long", []byte{dwOffsetExt, 30, 0x80, 0x40}, cfa - 0x10000},
			{"frame, above", []byte{dwOffsetExtSf, 30, 0x7e}, cfa + 16},
			{"x15", []byte{dwRegister, 30, 15}, 0},
			{"x30 again", []byte{dwRestore | 30}, 0},
		} {
			out := c.Rule()
			if place.insn != nil {
				var err error
				if out, err = c.Rows(place.insn, -8); err != nil {
					t.Fatalf("%s: %v", place.name, err)
				}
			}
			n, k := binary.Uvarint(out[2:])
			op := byte(dwValExpr)
			if place.addr != 0 {
				op = dwExpression // it says where, not what
			}
			if out[0] != op || out[1] != 30 || int(n) != len(out)-2-k {
				t.Fatalf("%s: % x", place.name, out)
			}
			got := evaluate(t, out[2+k:], cfa, map[byte]uint64{30: tt.value, 15: tt.value}, func(a uint64) uint64 {
				switch {
				case a == place.addr && a != 0:
					return tt.value
				case a == AnyShadow.Of(cfa-8):
					return caller
				case a-ret < 16 && tt.code != nil:
					return binary.LittleEndian.Uint64(tt.code[a-ret:])
				}
				t.Errorf("%s in %s: %#x is read", tt.text, place.name, a)
				return 0
			})
			want := tt.want
			switch {
			case place.addr != 0 && want == caller:
				want = AnyShadow.Of(cfa - 8)
			case place.addr != 0:
				want = place.addr
			}
			if got != want {
				t.Errorf("%s in %s: %#x, want %#x", tt.text, place.name, got, want)
			}
		}
	}
}

func TestCallerRows(t *testing.T) {
	c := Callers{AnyShadow}
	rule := string(c.Rule())
	saved := func(insn ...byte) string {
		b, err := c.Rows(insn, -8)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, tt := range []struct {
		text, in, want string
		err            error
	}{
		{"nothing", "", "", nil},
		{"no rule for x30", "\x44\x0e\x20\x9d\x04\x93\x02\x02\x10\x03\x00\x01\x04\x00\x00\x01\x00\xdd\x0c\x1d\x10\x0d\x1f\x2e\x10\x00\x00",
			"\x44\x0e\x20\x9d\x04\x93\x02\x02\x10\x03\x00\x01\x04\x00\x00\x01\x00\xdd\x0c\x1d\x10\x0d\x1f\x2e\x10\x00\x00", nil},
		{"gcc's", "\x41\x0e\x20\x9d\x04\x9e\x03\x42\xde\xdd\x0e\x00", "\x41\x0e\x20\x9d\x04" + saved(dwOffset|30, 3) + "\x42" + rule + "\xdd\x0e\x00", nil},
		{"two exits", "\x0a\xde\x0b\x06\x1e\x08\x1e", "\x0a" + rule + "\x0b" + rule + rule, nil},
		{"no caller", "\x07\x1e", "\x07\x1e", nil},
		{"rules of its own", "\x10\x1e\x02\x8f\x08\x16\x1e\x02\x8f\x08\x14\x1e\x01\x15\x1e\x01\x0f\x02\x8f\x08\x09\x1e\x40", "\x10\x1e\x02\x8f\x08\x16\x1e\x02\x8f\x08\x14\x1e\x01\x15\x1e\x01\x0f\x02\x8f\x08\x09\x1e\x40", nil},
		{"signed", "\x41\x2d\x41\x0e\x10", "", ErrSigned},
		{"signed with its address", "\x2c", "", ErrSigned},
		{"sign state", "\x16\x22\x01\x30", "", ErrSigned},
		{"unknown", "\x41\x3f", "", ErrRows},
		{"set_loc", "\x01\x00\x00\x00\x00\x00\x00\x00\x00", "", ErrRows},
		{"cut off", "\x9e", "", errShort},
		{"cut off in an advance", "\x04\x00\x00", "", errShort},
		{"cut off in an expression", "\x16\x05\x04\x30", "", errShort},
		{"cut off in a number", "\x11\x1e\x80", "", errShort},
		{"a number without end", "\x11\x1e" + strings.Repeat("\x80", 20) + "\x00", "", errShort},
		{"a huge length", "\x0f\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "", errors.ErrUnsupported},
	} {
		got, err := c.Rows([]byte(tt.in), -8)
		if tt.err == errors.ErrUnsupported {
			if err == nil || !strings.Contains(err.Error(), "too large") {
				t.Errorf("%s: %v", tt.text, err)
			}
			continue
		}
		if string(got) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: % x, %v; want % x, %v", tt.text, got, err, tt.want, tt.err)
		}
	}
	if !bytes.Equal(CallerRule(AnyShadow), c.Rule()) {
		t.Error("CallerRule and Rule differ")
	}
	for _, tt := range []struct {
		ret, code uint64
		data      int64
		insns     string
		want      bool
	}{
		{30, 4, -8, "\x0c\x1f\x00", true}, {30, 1, -4, "\x0c\x1f\x00\x00\x00\x00\x00", true}, {16, 4, -8, "\x0c\x1f\x00", false},
		{30, 4, -8, "\x0c\x1f\x10", false}, {30, 4, -8, "\x0c\x1f\x00\x07\x1e", false}, {30, 4, 8, "\x0c\x1f\x00", false}, {30, 4, -8, "\x0c\x1f", false},
	} {
		if got := StartsAtEntry(tt.ret, tt.code, tt.data, []byte(tt.insns)); got != tt.want {
			t.Errorf("StartsAtEntry of %v: %v", tt, got)
		}
	}
}

// The rule for fronts: while enter runs the return address is in x16.
func TestFrontRule(t *testing.T) {
	e := front()
	if !bytes.HasPrefix(e, []byte{dwDefCFA, regSP, 0, dwValExpr, regLR}) || int(e[5]) != len(e)-6 {
		t.Fatalf("% x", e)
	}
	const addr, caller = 0xaaaa_0000_0014, 0xaaaa_1111_2224
	mov := uint64(movReg(16, 30))
	for _, tt := range []struct {
		text string
		x30  uint64
		code uint64 // 8 bytes before it
		want uint64
	}{
		{"behind the call of enter", addr, mov, caller},
		{"behind another one's", addr + 8, mov, caller},
		{"behind a call", addr, 0xaa0003e0, addr},
		{"behind a call that cannot be a front's", addr - 16, 0, addr - 16},
		{"nowhere", 0, 0, 0},
		{"a small number", 0x114, 0, 0x114},
	} {
		read := func(a uint64) uint64 {
			if a == caller {
				return WordRet // which is looked at for what is behind thunks, by the rule of functions
			}
			if a != tt.x30-8 && a != tt.want || tt.code == 0 && a != tt.want || a&^0xfff != tt.x30&^0xfff {
				t.Errorf("%s: %#x is read", tt.text, a)
			}
			return tt.code
		}
		regs := map[byte]uint64{30: tt.x30, 16: caller}
		if got := evaluate(t, e[6:], 0xffff_1234_5670, regs, read); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.text, got, tt.want)
		}
		column := Callers{AnyShadow}.ColumnRule(InFront)
		n, k := binary.Uvarint(column[2:])
		if column[0] != dwValExpr || column[1] != PCColumn || int(n) != len(column)-2-k {
			t.Fatalf("% x", column)
		}
		if got := evaluate(t, column[2+k:], 0xffff_1234_5670, regs, read); got != tt.want {
			t.Errorf("%s: %#x by the column, want %#x", tt.text, got, tt.want)
		}
	}
}

// One entry describes the fronts of a run, and one the backs.
func TestThunkRuns(t *testing.T) {
	const n, other, back = 131, 3, 0x600000
	for k := arch.ThunkGraph; k < arch.ThunkKinds; k++ {
		runs := []arch.ThunkRun{{Addr: 0x500000, N: n, Size: FrontSize, Kind: k}, {Addr: 0x500000 + n*FrontSize, N: other, Size: FrontSize, Kind: arch.ThunkMcount}}
		fr := ThunkRunFrames(0x700000, runs, runs, back, AnyShadow)
		want := [][2]uint64{{0x500000, n * FrontSize}, {runs[1].Addr, other * FrontSize}}
		if HasBack(k) {
			want = append(want, [2]uint64{back, n * BackSize})
		}
		want = append(want, [2]uint64{back + n*BackSize, other * BackSize})
		var got [][2]uint64
		for _, p := range fr.FDEs {
			got = append(got, [2]uint64{p.PC, uint64(binary.LittleEndian.Uint32(fr.EhFrame[p.Addr-0x700000+12:]))})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %#x, want %#x", k, got, want)
		}
	}
}

// readelf's reading of the thunks' rows.
func TestThunkFrames(t *testing.T) {
	readelf := testtool.Path(t, "aarch64-linux-gnu-readelf")
	objcopy := testtool.Path(t, "aarch64-linux-gnu-objcopy")
	s, err := ShadowFor(48)
	if err != nil {
		t.Fatal(err)
	}
	const base = 0x700000
	thunks := []Thunk{someThunk(arch.ThunkGraph), someThunk(arch.ThunkGraph)}
	thunks[1].Addr += FrontSize
	thunks[1].Back += BackSize
	fr := ThunkFrames(base, thunks, s)
	le := binary.LittleEndian
	places := [][2]uint64{{thunks[0].Addr, 2 * FrontSize}, {thunks[0].Back, 2 * BackSize}}
	if len(fr.FDEs) != len(places) {
		t.Fatalf("%d FDEs", len(fr.FDEs))
	}
	for i, p := range fr.FDEs {
		at := p.Addr - base
		if p.PC != places[i][0] || p.Addr+8+uint64(int64(int32(le.Uint32(fr.EhFrame[at+8:])))) != p.PC || uint64(le.Uint32(fr.EhFrame[at+12:])) != places[i][1] {
			t.Errorf("FDE %d: %+v: % x", i, p, fr.EhFrame[at:][:20])
		}
	}
	want := []string{"DW_CFA_def_cfa: r31 (sp) ofs 0; DW_CFA_val_expression: r30 (x30)", "DW_CFA_def_cfa_expression; DW_CFA_expression: r30 (x30); DW_CFA_val_expression: r31 (sp)"}
	dir := t.TempDir()
	for name, data := range map[string][]byte{".eh_frame": append(bytes.Clone(fr.EhFrame), 0, 0, 0, 0), ".debug_frame": fr.DebugFrame} {
		in, out := filepath.Join(dir, "data"), filepath.Join(dir, "obj")
		if err := os.WriteFile(in, data, 0o666); err != nil {
			t.Fatal(err)
		}
		args := []string{"-I", "binary", "-O", "elf64-littleaarch64", "--rename-section", ".data=" + name, "--change-section-address", ".data=0x700000", in, out}
		if b, err := exec.Command(objcopy, args...).CombinedOutput(); err != nil {
			t.Fatalf("objcopy: %v\n%s", err, b)
		}
		b, err := exec.Command(readelf, "--debug-dump=frames", out).CombinedOutput()
		if err != nil {
			t.Fatalf("readelf: %v\n%s", err, b)
		}
		// What entries say is what their CIEs do.
		var got []string
		for _, entry := range regexp.MustCompile(`(?m)^[0-9a-f]{8} .* (?:CIE|FDE) ?.*$`).Split(string(b), -1) {
			var lines []string
			for line := range strings.Lines(entry) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), " (DW_OP")
				if strings.HasPrefix(line, "DW_CFA_") && line != "DW_CFA_nop" {
					lines = append(lines, line)
				}
			}
			if len(lines) > 0 {
				got = append(got, strings.Join(lines, "; "))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q\n%s", name, got, want, b)
		}
		if n := strings.Count(string(b), " FDE "); n != len(places) {
			t.Errorf("%s: %d FDEs", name, n)
		}
	}
}
