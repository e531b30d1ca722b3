// Package amd64 is what fentry knows about x86-64 instructions in 64-bit mode.
//
// Decode finds an instruction's length, class and PC-relative operand:
//
//	for off := 0; off < len(code); {
//		in, err := amd64.Decode(code[off:])
//		if err != nil {
//			return fmt.Errorf("%s+%#x: %w", section, off, err)
//		}
//		if in.PCRel != amd64.PCRelNone {
//			use(in.Target(addr + uint64(off)))
//		}
//		off += in.Len
//	}
//
// AppendNops, AppendCall, AppendJump and their kin encode, IsNops recognises.
package amd64
