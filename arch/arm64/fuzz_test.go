package arm64

import (
	"bytes"
	"testing"

	"github.com/fentry-dev/fentry/arch"
)

// FuzzDecode: Decode agrees with itself and depends on four bytes only.
func FuzzDecode(f *testing.F) {
	for _, r := range rows {
		f.Add(code(r.value), uint64(0x401000))
	}
	f.Fuzz(func(t *testing.T, b []byte, pc uint64) {
		in, err := Decode(b)
		if len(b) < InstLen {
			if err != ErrTruncated || in != (Inst{}) {
				t.Fatalf("% x: %+v, %v", b, in, err)
			}
			return
		}
		if again, err2 := Decode(b[:InstLen:InstLen]); err != nil || err2 != nil || again != in || in.Len != InstLen || in.Op.String() == "op?" {
			t.Fatalf("% x: %+v, %v; alone %+v, %v", b, in, err, again, err2)
		}
		if in.PCRel == PCRelNone && (in.Disp != 0 || in.Target(pc) != 0) {
			t.Fatalf("% x: %+v", b, in)
		}
	})
}

// FuzzRelocate: a moved instruction refers to what it referred to, and
// RelocatedLen knows its length.
func FuzzRelocate(f *testing.F) {
	for _, r := range rows {
		f.Add(r.value, uint64(0x2401000))
	}
	f.Fuzz(func(t *testing.T, w uint32, to uint64) {
		const at = 0x401000
		in := DecodeWord(w)
		out, err := Relocate(nil, in, code(w), at, to)
		if err != nil {
			if len(out) != 0 || in.PCRel == PCRelNone && in.Op != SignPC && to%InstLen == 0 {
				t.Fatalf("%08x to %#x: % x, %v", w, to, out, err)
			}
			return
		}
		if len(out) != RelocatedLen(in) {
			t.Fatalf("%08x to %#x: % x, not %d bytes", w, to, out, RelocatedLen(in))
		}
		word := func(k int) Inst { return DecodeWord(word32(out[k*InstLen:])) }
		last := len(out)/InstLen - 1
		switch in.PCRel {
		case PCRelNone:
			if !bytes.Equal(out, code(w)) {
				t.Fatalf("%08x has become % x", w, out)
			}
		case PCRelBranch:
			if got := word(last); got.Op != Jmp && got.Op != Call || got.Target(to+uint64(last*InstLen)) != in.Target(at) {
				t.Fatalf("%08x to %#x: % x", w, to, out)
			}
			if end := to + uint64(len(out)); last == 1 && word(0).Target(to) != end || last == 2 && (word(0).Target(to) != end-4 || word(1).Target(to+4) != end) {
				t.Fatalf("%08x to %#x: % x", w, to, out)
			}
		default:
			k := 0
			if in.Op == LdrLitFP {
				k = 1
			}
			if word(0).Op == Nop {
				break // to the zero register, or a prefetch
			}
			page := word(k)
			target := page.Target(to + uint64(k*InstLen))
			if in.Op != Adrp {
				target += uint64(word32(out[(k+1)*InstLen:]) >> 10 & pageMask)
			}
			if page.Op != Adrp || target != in.Target(at) {
				t.Fatalf("%08x to %#x: % x refers to %#x, not %#x", w, to, out, target, in.Target(at))
			}
		}
	})
}

// FuzzFtrace: whatever stands at a site, it changes as asked or not at all.
func FuzzFtrace(f *testing.F) {
	f.Add(code(WordMovX9LR, WordNop), uint8(2), uint64(0x402000), uint64(0x403000))
	f.Add(code(WordMovX9LR, 0x940003ff), uint8(1), uint64(0x402000), uint64(0x403000))
	f.Add(code(WordMovX9LR, 0x940003ff), uint8(3), uint64(0x402000), uint64(0x40000000))
	f.Add(code(WordNop, WordNop, WordNop), uint8(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, action uint8, old, new uint64) {
		const addr = 0x401004
		mem := arch.Bytes{Addr: addr - 4, Data: bytes.Clone(b)}
		v := &Veneers{Addr: 0x500000, Size: 64}
		ft := Ftrace{Veneers: v}
		c := arch.Change{Action: arch.Action(action), Site: arch.Site{Addr: addr, Len: InstLen}, Old: old, New: new}
		if err := arch.Do(ft, mem, c); err != nil {
			if !bytes.Equal(mem.Data, b) {
				t.Fatalf("% x: %v, but now % x", b, err, mem.Data)
			}
		} else {
			in := DecodeWord(word32(mem.Data[4:]))
			to := in.Target(addr)
			if island, err := v.Append(nil); err == nil && to == v.Addr {
				to, _ = VeneerTarget(island, v.Addr)
			}
			ok := false
			switch c.Action {
			case arch.Init:
				ok = in.Word == WordMovX9LR
			case arch.Nop, arch.GraphDisable:
				ok = in.Op == Nop
			case arch.Call, arch.Modify, arch.Func:
				ok = in.Op == Call && to == new
			case arch.GraphEnable:
				ok = in.Op == Jmp && to == new
			}
			if !ok || !bytes.Equal(mem.Data[:4], b[:4]) || !bytes.Equal(mem.Data[8:], b[8:]) {
				t.Fatalf("action %d: % x is now % x", action, b, mem.Data)
			}
		}
		if site, err := ft.CallAdjust(mem, addr); err == nil && (site%InstLen != 0 || site-addr > uint64(len(b))) {
			t.Fatalf("% x: site %#x", b, site)
		}
	})
}

// FuzzRows: frame descriptions from anywhere give rows that are read again, or an error.
func FuzzRows(f *testing.F) {
	f.Add([]byte("\x41\x0e\x20\x9d\x04\x9e\x03\x42\xde\xdd\x0e\x00"), int64(-8))
	f.Add([]byte("\x0a\xde\x0b\x06\x1e\x08\x1e\x09\x1e\x0f\x11\x1e\x7e"), int64(-4))
	f.Fuzz(func(t *testing.T, b []byte, align int64) {
		c := Callers{AnyShadow}
		before := bytes.Clone(b)
		out, err := c.Rows(b, align)
		if !bytes.Equal(b, before) {
			t.Fatal("the input has changed")
		}
		if err != nil {
			if out != nil {
				t.Fatalf("% x with %v", out, err)
			}
			return
		}
		if len(out) > 256*len(b) {
			t.Fatalf("%d bytes from %d", len(out), len(b))
		}
		again, err := c.Rows(out, align)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("% x: % x, then % x, %v", b, out, again, err)
		}
	})
}
