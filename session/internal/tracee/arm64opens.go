//go:build linux && (amd64 || arm64)

package tracee

import (
	"slices"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
)

// On arm64, where glibc's loader opens files it has
//
//	mov  x8, #56          (openat)
//	...                   moves of arguments
//	svc  #0
//	cmn  x0, #1, lsl #12  (or #4095)
//	b.hi ...              (or b.hs)
//
// The system call becomes a branch to a stub. What branches to it with another number has its call made, and nothing else.
// Flags are not in use there, as the next instruction sets them; all registers are.
//
// musl's calls of open are
//
//	mov  w1, #O_RDONLY|O_CLOEXEC
//	...                   moves of arguments
//	bl   open

const (
	arm64Openat   = 56
	arm64ReadOnly = 0x52a00101 // mov w1, #0x80000
	// arm64Moves bounds how many instructions are between that and the call.
	arm64Moves = 6

	arm64PushLink = 0xa9bf7bf0 // stp x16, x30, [sp, #-16]!
	arm64PopLink  = 0xa8c17bf0 // ldp x16, x30, [sp], #16
	arm64Trap     = 0xd4200000 // brk #0
	arm64Ret      = 0xd65f03c0
)

// arm64Checks are the instructions behind a system call that compare its result with the range of errors.
var arm64Checks = []uint32{0xb140041f, 0xb13ffc1f}

// What stubs of arm64 are like: one in the place of a system call, and one in the place of a call of open.
var (
	arm64OpenLayout = stubLayout{size: 96, trap: 80, back: 84, slot: 88}
	arm64CallLayout = stubLayout{size: 40, back: 28, slot: 32}
)

// arm64FindOpens returns where in code files are opened, by the offset of the system call.
func arm64FindOpens(code []byte) (at []int) {
	word := func(far int64) uint32 {
		if far < 0 || far+arm64.InstLen > int64(len(code)) {
			return 0
		}
		return le.Uint32(code[far:])
	}
	for i := int64(0); i+arm64.InstLen <= int64(len(code)); i += arm64.InstLen {
		if word(i)&^(1<<31) != 0x52800008|arm64Openat<<5 { // mov w8 or x8, #nr
			continue
		}
		for _, far := range arm64CallsBehind(word, i+arm64.InstLen) {
			if slices.Contains(arm64Checks, word(far+arm64.InstLen)) {
				at = append(at, int(far))
			}
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// arm64FindCalls returns the offsets in code of calls of open, which is that far from its beginning, to read something.
func arm64FindCalls(code []byte, open uint64) (at []int) {
	for i := 0; i+arm64.InstLen <= len(code); i += arm64.InstLen {
		w := le.Uint32(code[i:])
		if w>>26 != 0x25 || uint64(i)+uint64(int64(int32(w<<6))>>4) != open {
			continue
		}
		for k := i - arm64.InstLen; k >= max(0, i-arm64Moves*arm64.InstLen); k -= arm64.InstLen {
			if le.Uint32(code[k:]) == arm64ReadOnly {
				at = append(at, i)
				break
			}
		}
	}
	return at
}

// arm64OpenStub returns the code at addr for a system call at site, which is recorded if there are ways to the runtime,
// and the change of that.
func arm64OpenStub(addr, site uint64, w ways) (b []byte, e arch.Edit, err error) {
	const behind = arm64.SyscallLen // where it is after the call
	if w.enter != 0 {
		s := arm64.SyscallCopy{At: addr + behind - arm64.InstLen, Enter: w.enter, Exit: w.exit}
		if b, err = s.Append(b, addr); err != nil {
			return nil, e, err
		}
	} else {
		b = le.AppendUint32(b, arm64.WordSvc)
		if b, err = arm64.AppendJump(b, addr+arm64.InstLen, addr+behind); err != nil {
			return nil, e, err
		}
		for len(b) < behind {
			b = le.AppendUint32(b, arm64Trap)
		}
	}
	for _, w := range []uint32{
		0xb140041f,        // cmn x0, #1, lsl #12
		0x54000008 | 7<<5, // b.hi the branch back
		0xf100e11f,        // cmp x8, #56
		0x54000001 | 5<<5, // b.ne the branch back
		arm64PushLink,
		0x58000010 | 6<<5, // ldr x16, slot
		0xd63f0200,        // blr x16
		arm64PopLink,
	} {
		b = le.AppendUint32(b, w)
	}
	if b, err = arm64.AppendJump(b, addr+uint64(len(b)), site+arm64.InstLen); err != nil {
		return nil, e, err
	}
	b = le.AppendUint32(le.AppendUint32(b, arm64Trap), arm64Ret)
	b = le.AppendUint64(b, addr+arm64OpenLayout.trap)
	jump, err := arm64.AppendJump(nil, site, addr)
	return b, arch.Edit{Addr: site, Old: le.AppendUint32(nil, arm64.WordSvc), New: jump}, err
}

// arm64CallStub returns the code at addr that calls open for who called it at site, and the change of that.
func arm64CallStub(addr, site, open uint64) (b []byte, e arch.Edit, err error) {
	b = le.AppendUint32(b, arm64PushLink)
	if b, err = arm64.AppendCall(b, addr+arm64.InstLen, open); err != nil {
		return nil, e, err
	}
	for _, w := range []uint32{
		arm64PopLink,
		0x37f80000 | 4<<5, // tbnz w0, #31, ret
		0x2a0003e0,        // mov w0, w0
		0x58000010 | 3<<5, // ldr x16, slot
		0xd61f0200,        // br x16
		arm64Ret,
	} {
		b = le.AppendUint32(b, w)
	}
	b = le.AppendUint64(b, addr+arm64CallLayout.back)
	e.Addr = site
	if e.Old, err = arm64.AppendCall(nil, site, open); err == nil {
		e.New, err = arm64.AppendCall(nil, site, addr)
	}
	return b, e, err
}
