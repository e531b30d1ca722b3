package arm64

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// The rule for the column of the pc: the return address is in x30 where the CFA is the stack pointer, or marked, and
// behind a thunk it is in the shadow. The stack pointer is the CFA without the mark.
func TestColumnRule(t *testing.T) {
	const sp, caller, back = 0xffff_1234_5670, 0xaaaa_1111_2224, 0xaaaa_0000_0024
	th := someThunk(arch.ThunkGraph)
	b := make([]byte, BackSize)
	if err := th.EncodeBack(b); err != nil {
		t.Fatal(err)
	}
	c := Callers{AnyShadow}
	for _, off := range []int64{InRegister, -16, -8, -4096} {
		out := c.ColumnRule(off)
		if off != InRegister {
			if n := 3 + len(even); !bytes.HasPrefix(out, []byte{dwValExpr, regSP, byte(len(even))}) {
				t.Fatalf("%d: % x", off, out)
			} else if got := evaluate(t, out[3:n], sp+97, nil, nil); got != sp+96 {
				t.Errorf("%d: the stack pointer is %#x", off, got)
			}
			out = out[3+len(even):]
		}
		n, k := binary.Uvarint(out[2:])
		if out[0] != dwValExpr || out[1] != PCColumn || int(n) != len(out)-2-k {
			t.Fatalf("%d: % x", off, out)
		}
		for _, tt := range []struct {
			cfa  uint64
			lead bool
		}{{sp, true}, {sp + 97, true}, {sp + 4097, true}, {sp + 96, off == InRegister}, {sp + 4096, off == InRegister}} {
			for _, ret := range []uint64{caller, back, 0} {
				regs := map[byte]uint64{regSP: sp, regLR: 0x1234}
				if tt.lead {
					regs[regLR] = ret
				}
				s := tt.cfa
				if off != InRegister {
					s &^= 1
				}
				got := evaluate(t, out[2+k:], tt.cfa, regs, func(a uint64) uint64 {
					switch {
					case !tt.lead && a == s+uint64(off):
						return ret
					case ret == back && a == AnyShadow.Of(s-8):
						return caller
					case ret == back && a-back < 8:
						return binary.LittleEndian.Uint64(b[ThunkRet+a-back:])
					case ret == caller && a == caller:
						return WordRet
					}
					t.Errorf("%d: %+v: %#x is read", off, tt, a)
					return 0
				})
				if want := ret; got != want && (ret != back || got != caller) {
					t.Errorf("%d: %+v: %#x, want %#x", off, tt, got, want)
				}
			}
		}
	}
}
