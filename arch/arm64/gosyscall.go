package arm64

// System calls of Go's own code.
//
// It makes them in assembly, on stacks that can be full, so nothing is pushed there; and where functions have no frame x30 is
// the return address. So the copy of such a call takes x16 and x17, which have to be free behind it (package plain), and x17
// is the way back:
//
//	adr x17, 1f; b enter
//	1: svc #0
//	adr x17, 2f; b exit
//	svc #0
//	2: b behind the site
//
// A call that is not recorded is made at the second instruction: enter comes back 12 bytes further on.

// GoSyscallLen is how many bytes [GoSyscallCopy.Append] appends, and GoSyscallBehind which of them is the first that stands
// for what is behind the call.
const (
	GoSyscallLen    = 7 * InstLen
	GoSyscallBehind = 6 * InstLen
)

// A GoSyscallCopy makes the copy of a system call.
type GoSyscallCopy struct {
	At          uint64 // its address
	Enter, Exit uint64 // routines to go to, which have x16 to themselves, and come back to the address in x17
}

// adr17 is adr x17, of no distance.
const adr17 = 0x10000011

// Append appends the copy for address to. Its error is a [RangeError].
func (s *GoSyscallCopy) Append(dst []byte, to uint64) ([]byte, error) {
	a := assembler{dst: dst, pc: to}
	leave := func(routine uint64, words uint32) {
		a.word(adr17 | words<<5)
		a.branch(AppendJump, routine)
	}
	leave(s.Enter, 2)
	a.word(WordSvc)
	leave(s.Exit, 3)
	a.word(WordSvc)
	a.branch(AppendJump, s.At+InstLen)
	if a.err != nil {
		return dst, a.err
	}
	return a.dst, nil
}
