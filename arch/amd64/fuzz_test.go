package amd64

import (
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

func seedCode(f *testing.F) {
	for _, s := range []string{
		"90", "f3 0f 1e fa", "e8 00 00 00 00", "66 0f 84 00 00 00 00", "67 e8 00 00 00 00", "ff 15 00 00 00 00", "75 fe", "e2 00",
		"66 c7 f8 00 00", "48 b8 00 00 00 00 00 00 00 00", "67 a1 00 00 00 00", "c8 00 00 00", "66 0f 78 c0 01 02", "0f 0f c0 9e",
		"c5 f8 77", "c4 e3 7d 19 05 00 00 00 00 01", "62 f3 7d 48 25 05 00 00 00 00 ff", "8f ea 78 10 c1 00 00 00 00", "8f c0",
		"66 66 66 66 66 66 2e 0f 1f 84 00 00 00 00 00", "66 66 66 66 66 66 66 2e 0f 1f 84 00 00 00 00 00", "d5 00 90", "0f 20 c0",
		"0f 20 00", "0f 23 3c 00", "f0 48 0f b1 0d 00 00 00 00", "dd 05 00 00 00 00", "f6 05 00 00 00 00 01", "0f 38 f0 05 00 00 00 00", "0f 3a 0f 05 00 00 00 00 01",
	} {
		f.Add(unhex(f, s), uint64(0x401000))
	}
}

// FuzzDecode: Decode ends, agrees with itself, and depends on the instruction's own bytes only.
func FuzzDecode(f *testing.F) {
	seedCode(f)
	f.Fuzz(func(t *testing.T, code []byte, pc uint64) {
		in, err := Decode(code)
		if again, err2 := Decode(bytes.Clone(code)); again != in || err2 != err {
			t.Fatalf("% x: %+v, %v; then %+v, %v", code, in, err, again, err2)
		}
		switch err {
		case nil:
		case ErrTruncated, ErrInvalid, ErrTooLong, ErrUndecided:
			if in != (Inst{}) {
				t.Fatalf("% x: %+v with %v", code, in, err)
			}
			if err == ErrTruncated && len(code) >= maxLen {
				t.Fatalf("% x: %v", code, err)
			}
			return
		default:
			t.Fatalf("% x: %v is no error of Decode's", code, err)
		}
		if in.Len < 1 || in.Len > maxLen || in.Len > len(code) {
			t.Fatalf("% x: length %d", code, in.Len)
		}
		// What asks for operands reads within the instruction.
		raw := code[:in.Len:in.Len]
		in.Memory(raw)
		in.Move(raw)
		in.FlagUse(raw)
		in.MayWrite(RSP)
		if alone, err := Decode(code[:in.Len:in.Len]); err != nil || alone != in {
			t.Fatalf("% x: %+v; alone %+v, %v", code, in, alone, err)
		}
		for n := range in.Len {
			if _, err := Decode(code[:n]); err != ErrTruncated {
				t.Fatalf("% x: first %d bytes: %v", code, n, err)
			}
		}
		end := in.PCOff + in.PCSize + in.ImmLen
		switch in.PCRel {
		case PCRelNone:
			if in.PCOff != 0 || in.PCSize != 0 || in.Disp != 0 || in.Target(pc) != 0 || in.ImmLen >= in.Len {
				t.Fatalf("% x: %+v", code, in)
			}
		default:
			if in.PCOff < 1 || end != in.Len {
				t.Fatalf("% x: %+v", code, in)
			}
			if in.Op.String() == "op?" {
				t.Fatalf("% x: %+v", code, in)
			}
		}
	})
}

// FuzzRelocate: a moved instruction refers to what it referred to, and
// RelocatedLen knows its length.
func FuzzRelocate(f *testing.F) {
	seedCode(f)
	f.Fuzz(func(t *testing.T, code []byte, to uint64) {
		const at = 0x401000
		in, err := Decode(code)
		if err != nil {
			return
		}
		out, err := Relocate(nil, in, code, at, to)
		if err != nil {
			if in.PCRel == PCRelNone || len(out) != 0 {
				t.Fatalf("% x to %#x: % x, %v", code, to, out, err)
			}
			return
		}
		if len(out) != RelocatedLen(in) {
			t.Fatalf("% x to %#x: % x, not %d bytes", code[:in.Len], to, out, RelocatedLen(in))
		}
		// What comes last refers to the target; a loop's copy goes there over two jumps.
		off := 0
		if in.Op == Loop || in.Op == Jrcxz {
			off = len(out) - JumpLen
			for start, want := 0, uint64(off); start < off; {
				step, err := Decode(out[start:])
				if err != nil {
					t.Fatalf("% x to %#x: % x: %v", code[:in.Len], to, out, err)
				}
				if step.Op == Jmp {
					want = uint64(len(out))
				}
				if step.Target(uint64(start)) != want {
					t.Fatalf("% x to %#x: % x", code[:in.Len], to, out)
				}
				start += step.Len
			}
		}
		moved, err := Decode(out[off:])
		if err != nil || off+moved.Len != len(out) || moved.PCRel != in.PCRel || moved.Target(to+uint64(off)) != in.Target(at) {
			t.Fatalf("% x to %#x: % x: %+v, %v", code[:in.Len], to, out, moved, err)
		}
		if off == 0 && moved.Op != in.Op || moved.Cond != in.Cond && off == 0 || moved.ImmLen != in.ImmLen {
			t.Fatalf("% x to %#x: % x: %+v from %+v", code[:in.Len], to, out, moved, in)
		}
	})
}

// FuzzFtrace: whatever stands at a site, it changes as asked or not at all.
func FuzzFtrace(f *testing.F) {
	f.Add([]byte("\x0f\x1f\x44\x00\x00"), uint8(2), uint64(0x402000), uint64(0x403000))
	f.Add([]byte("\xe8\xfb\x0f\x00\x00"), uint8(1), uint64(0x402000), uint64(0x403000))
	f.Add([]byte("\x67\xe8\xfa\x0f\x00\x00"), uint8(3), uint64(0x402000), uint64(0x403000))
	f.Add([]byte("\xff\x15\xfa\x0f\x00\x00"), uint8(1), uint64(0x402000), uint64(0x403000))
	f.Fuzz(func(t *testing.T, code []byte, action uint8, old, new uint64) {
		const addr = 0x401000
		mem := arch.Bytes{Addr: addr, Data: bytes.Clone(code)}
		c := arch.Change{Action: arch.Action(action), Site: arch.Site{Addr: addr, Len: len(code)}, Old: old, New: new}
		if err := arch.Do(Ftrace{}, mem, c); err != nil {
			if !bytes.Equal(mem.Data, code) {
				t.Fatalf("% x: %v, but now % x", code, err, mem.Data)
			}
			return
		}
		if len(code) < 5 {
			t.Fatalf("% x: a site of %d bytes has become % x", code, len(code), mem.Data)
		}
		in, err := Decode(mem.Data)
		switch c.Action {
		case arch.Nop, arch.GraphDisable:
			if IsNops(mem.Data) != len(code) {
				t.Fatalf("% x is now % x", code, mem.Data)
			}
		case arch.Call, arch.Modify, arch.Func:
			if err != nil || in.Op != Call || in.Target(addr) != new || IsNops(mem.Data[in.Len:]) != len(code)-in.Len {
				t.Fatalf("% x is now % x: %+v, %v", code, mem.Data, in, err)
			}
		case arch.GraphEnable:
			if err != nil || in.Op != Jmp || in.Target(addr) != new {
				t.Fatalf("% x is now % x: %+v, %v", code, mem.Data, in, err)
			}
		default:
			t.Fatalf("action %d did something: % x", action, mem.Data)
		}
	})
}
