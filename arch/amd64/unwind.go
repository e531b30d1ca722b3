package amd64

import (
	"bytes"
	"encoding/binary"
)

// thunkRetCode is the code at thunkRet, where a traced body returns to: what
// tells a return address that is a thunk's from any other.
//
// It is push %rax, encoded as no assembler does it, and the beginning of a call.
var thunkRetCode = [4]byte{0x40, 0xff, 0xf0, 0xe8}

// ShadowBit is the bit to flip in the address of a return address slot to get its shadow, which holds the return
// address while the slot holds a thunk's.
const ShadowBit = 46

// StartsAtEntry reports whether a CIE with these fields and initial instructions is the one that compilers use for
// functions: at the first instruction the CFA is rsp+8 and the return address is in the slot below it. Others, such
// as that of _start, which has no caller, must stay as they are.
func StartsAtEntry(retReg, codeAlign uint64, dataAlign int64, instructions []byte) bool {
	entry := []byte{0x0c, 7, 8, 0x80 | 16, 1} // DW_CFA_def_cfa rsp, 8; DW_CFA_offset rip, 1
	if retReg != 16 || codeAlign != 1 || dataAlign != -8 || !bytes.HasPrefix(instructions, entry) {
		return false
	}
	for _, b := range instructions[len(entry):] {
		if b != 0 { // DW_CFA_nop
			return false
		}
	}
	return true
}

// CallerRule returns the call frame instructions that make unwinders see a function's real caller while the function
// is traced: when the slot below the CFA holds a thunk's return address, the caller's is in the slot's shadow. They
// belong at the end of a CIE's initial instructions and are right for functions that are not traced, too.
//
// The rule reads the code at the return address, so values that are not one, such as the 0 that ends the stack of a
// hand-made coroutine, are left alone.
func CallerRule() []byte {
	const (
		lit8, minus, dup, deref, drop = 0x38, 0x1c, 0x12, 0x06, 0x13
		const1u, const4u              = 0x08, 0x0c
		eq, gt, shl, xor              = 0x29, 0x2b, 0x24, 0x27
		bra, skip                     = 0x28, 0x2f
		lowestCode                    = 0x10000
	)
	test := []byte{opDerefSz, byte(len(thunkRetCode)), const4u} // slot, address -> slot, code at the address
	test = append(test, thunkRetCode[:]...)
	test = append(test, eq, const1u, ShadowBit, shl, xor)

	e := []byte{lit8, minus, dup, deref, dup, const4u} // CFA -> slot, address, address
	e = binary.LittleEndian.AppendUint32(e, lowestCode)
	e = append(e, gt, bra, 4, 0, drop, skip, byte(len(test)), 0)
	return expression(dwExpression, append(e, test...), regIP)
}
