package record

import (
	"bytes"
	"encoding/binary"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/record/code"
)

// jumpStubs finds the jumps of stubs. In sections for stubs there are only these, whole, from the first byte on:
//
//	ff 25 disp32                  jmp *slot(%rip)         .plt; then push $index; jmp .plt
//	ff 25 disp32  66 90           jmp *slot(%rip)         .plt.got
//	f3 0f 1e fa  [f2] ff 25 disp32                        .plt.sec (IBT): endbr64; [bnd] jmp *slot(%rip)
//	f3 0f 1e fa  41 bb imm32  ff 25 disp32                mold: endbr64; mov $index, %r11d; jmp *slot(%rip)
//
// A stub is what such a jump ends, from where the one before it has ended. One with other instructions is none that is
// known: the stack may not be as a function's callers leave it.
func (amd64Machine) jumpStubs(r *code.Region) (out []stub) {
	start, known := 0, true // where the block begins, and whether it can be a stub
	for at := 0; at < len(r.Data); {
		in, err := amd64.Decode(r.Data[at:])
		if err != nil {
			at++
			start, known = at, true
			continue
		}
		pc, end := r.Addr+uint64(at), at+in.Len
		padding := at == start && (in.Op == amd64.Nop || in.Op == amd64.Int3)
		switch {
		case padding || in.Op.EndsBlock():
			if in.Op == amd64.JmpInd && in.PCRel == amd64.PCRelMem && known {
				out = append(out, stub{r.Addr + uint64(start), pc, in.Len, in.Target(pc)})
			}
			start, known = end, true
		default:
			known = known && (in.Op == amd64.Endbr64 || isIndex(r.Data[at:end]))
		}
		at = end
	}
	return out
}

// isIndex recognises mov $imm32, %r11d.
func isIndex(b []byte) bool { return len(b) == 6 && b[0] == 0x41 && b[1] == 0xbb }

// wordCalls finds what code compiled with -fno-plt has in place of calls of stubs:
//
//	ff 15 disp32  call *slot(%rip)
//	ff 25 disp32  jmp *slot(%rip)
func (amd64Machine) wordCalls(r *code.Region, known func(uint64) bool) (out []wordCall) {
	for at := 0; at+amd64.CallGOTLen <= len(r.Data); at++ {
		k := bytes.IndexByte(r.Data[at:len(r.Data)-amd64.CallGOTLen+1], 0xff)
		if k < 0 {
			break
		}
		at += k
		b := r.Data[at : at+amd64.CallGOTLen]
		if b[1] != 0x15 && b[1] != 0x25 {
			continue
		}
		end := r.Addr + uint64(at) + amd64.CallGOTLen
		if slot := end + uint64(int64(int32(binary.LittleEndian.Uint32(b[2:])))); known(slot) {
			out = append(out, wordCall{r.Addr + uint64(at), len(b), slot, b[1] == 0x25})
		}
	}
	return out
}
