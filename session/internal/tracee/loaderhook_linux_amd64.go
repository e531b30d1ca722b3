package tracee

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
)

// On x86-64, where glibc's loader opens files it has
//
//	b8 01 01 00 00        mov  $0x101, %eax   (openat)
//	...                   moves of arguments
//	0f 05                 syscall
//	48 3d 00 f0 ff ff     cmp  $-4096, %rax
//	77 xx                 ja   ...
//
// The last two but one become a jump to a stub of the same instructions.
//
// The recorder must not change code that something else jumps into: where any bytes of the loader could be a branch to
// the middle of the eight, they are left alone.
//
// musl's calls of open are
//
//	be 00 00 08 00        mov  $O_RDONLY|O_CLOEXEC, %esi
//	...                   moves of arguments
//	e8 xx xx xx xx        call open

// A stub, and offsets in it.
const (
	stubSize = 72
	stubCall = 12 // the system call
	stubBack = 49 // where it goes back to the loader
	stubTrap = 54 // a breakpoint in front of that
	stubSlot = 64 // the address that it goes on to
)

var openLayout = stubLayout{stubSize, stubBack, stubTrap, stubSlot}

var (
	openatNumber = []byte{0xb8, 0x01, 0x01, 0x00, 0x00}                   // mov $0x101, %eax
	callAndCheck = []byte{0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff} // syscall; cmp $-4096, %rax
)

// A stub in place of a call of open, and offsets in it.
const (
	callStubSize = 48
	callStubBack = 32
	callStubSlot = 40
)

var callLayout = stubLayout{size: callStubSize, back: callStubBack, slot: callStubSlot}

// readOnly is in front of calls of open: mov $O_RDONLY|O_CLOEXEC, %esi.
var readOnly = []byte{0xbe, 0x00, 0x00, 0x08, 0x00}

// findCalls returns the offsets in code of calls of open, which is that far from its beginning, to read something.
func findCalls(code []byte, open uint64) (at []int) {
	const moves = 24 // most bytes between the flags and the call
	for i := 0; i+5 <= len(code); i++ {
		if code[i] == 0xe8 && uint64(i)+5+uint64(int64(int32(le.Uint32(code[i+1:])))) == open &&
			bytes.Contains(code[max(0, i-moves):i], readOnly) {
			at = append(at, i)
		}
	}
	return at
}

// exchangeCode does what replaceFD does: it opens the file at the path in r12 as the descriptor in ebx, and keeps whether that
// is closed at execve. rax says how it went. Each system call that a tracer has a process make by itself is two changes of
// process and ten requests; a library needs four.
var exchangeCode = []byte{
	0x89, 0xdf, // mov %ebx, %edi
	0xbe, unix.F_GETFD, 0, 0, 0, // mov $F_GETFD, %esi
	0xb8, unix.SYS_FCNTL, 0, 0, 0, // mov $SYS_fcntl, %eax
	0x0f, 0x05, // syscall
	0x48, 0x85, 0xc0, // test %rax, %rax
	0x78, 64, // js end
	0x89, 0xc5, // mov %eax, %ebp
	0x83, 0xe5, unix.FD_CLOEXEC, // and $FD_CLOEXEC, %ebp
	0xc1, 0xe5, 19, // shl $19, %ebp: O_CLOEXEC
	0x48, 0xc7, 0xc7, 0x9c, 0xff, 0xff, 0xff, // mov $AT_FDCWD, %rdi
	0x4c, 0x89, 0xe6, // mov %r12, %rsi
	0x31, 0xd2, // xor %edx, %edx: O_RDONLY
	0xb8, 0x01, 0x01, 0x00, 0x00, // mov $SYS_openat, %eax
	0x0f, 0x05, // syscall
	0x48, 0x85, 0xc0, // test %rax, %rax
	0x78, 32, // js end
	0x41, 0x89, 0xc5, // mov %eax, %r13d
	0x89, 0xc7, // mov %eax, %edi
	0x89, 0xde, // mov %ebx, %esi
	0x89, 0xea, // mov %ebp, %edx
	0xb8, 0x24, 0x01, 0x00, 0x00, // mov $SYS_dup3, %eax
	0x0f, 0x05, // syscall
	0x49, 0x89, 0xc6, // mov %rax, %r14
	0x44, 0x89, 0xef, // mov %r13d, %edi
	0xb8, unix.SYS_CLOSE, 0, 0, 0, // mov $SYS_close, %eax
	0x0f, 0x05, // syscall
	0x4c, 0x89, 0xf0, // mov %r14, %rax
	0xcc, // end: int3
}

// exchangePath is the room for the path, behind it.
const exchangePath = 128

// exchangeFD makes a descriptor of the process one of the file at path. Signals are blocked.
func (l *loader) exchangeFD(fd uint64, path string) error {
	regs, err := l.t.registers()
	if err != nil {
		return &RefusedError{err}
	}
	end := l.exchange + uint64(len(exchangeCode))
	if err := l.t.WriteAt(append([]byte(path), 0), end); err != nil {
		return err
	}
	run := *regs
	run.Rbx, run.R12 = fd, end
	run.setPC(l.exchange)
	run.noRestart()
	if err := l.t.setRegisters(&run); err != nil {
		return &RefusedError{err}
	}
	if err := l.t.resume(unix.PtraceCont); err != nil {
		return err
	}
	after, err := l.t.registers()
	if err == nil && !after.stoppedAt(end-uint64(len(breakpoint))) {
		err = fmt.Errorf("stopped at %#x", after.pc())
	}
	if err == nil {
		_, err = after.value()
	}
	if serr := l.t.setRegisters(regs); err == nil {
		err = serr
	}
	if err != nil {
		return &RefusedError{fmt.Errorf("open %s in the process: %w", path, err)}
	}
	return nil
}

// openedFile returns the descriptor of the file that has been opened, and the address of its name.
func (r *registers) openedFile() (fd, path uint64) { return r.Rax, r.Rsi }

// pass has the process go on behind a breakpoint, where it is.
func (t *Process) pass(*registers) error { return nil }

// callStub returns the code at addr that calls open for who called it at site, and the change of that.
func callStub(addr, site, open uint64) ([]byte, arch.Edit, error) {
	call := func(to uint64) []byte { return le.AppendUint32([]byte{0xe8}, uint32(to-(site+5))) }
	return appendCallStub(addr, open), arch.Edit{Addr: site, Old: call(open), New: call(addr)}, nil
}

func appendCallStub(addr, open uint64) []byte {
	b := []byte{0x48, 0x83, 0xec, 0x08}                                   // sub $8, %rsp
	b = le.AppendUint32(append(b, 0xe8), uint32(open-(addr+9)))           // call open
	b = append(b, 0x48, 0x83, 0xc4, 0x08, 0x85, 0xc0)                     // add $8, %rsp; test %eax, %eax
	b = append(b, 0x78, callStubBack-17, 0x89, 0xc0)                      // js back; mov %eax, %eax
	b = le.AppendUint32(append(b, 0x4c, 0x8d, 0x1d), callStubBack-26)     // lea back(%rip), %r11
	b = le.AppendUint32(append(b, 0xff, 0x25), callStubSlot-callStubBack) // jmp *slot(%rip)
	b = append(b, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc)         // back: ret
	return le.AppendUint64(b, addr+callStubBack)                          // slot
}

// openStub returns the code at addr for a system call at site, which is recorded if there are ways to the runtime, and the
// change of that.
func openStub(addr, site uint64, w ways) ([]byte, arch.Edit, error) {
	jmp := append(le.AppendUint32([]byte{0xe9}, uint32(addr-(site+5))), 0x0f, 0x1f, 0x00) // jmp stub; nopl (%rax)
	return appendOpenStub(addr, site, w), arch.Edit{Addr: site, Old: callAndCheck, New: jmp}, nil
}

func appendOpenStub(addr, site uint64, w ways) []byte {
	next := site + uint64(len(callAndCheck))
	b := appendWay(nil, addr, w.enter, 0)
	b = append(b, callAndCheck[:2]...) // syscall
	b = appendWay(b, addr+uint64(len(b)), w.exit, 2)
	b = append(b, callAndCheck[:2]...)                                       // syscall, of a call that is not recorded
	b = append(b, callAndCheck[2:]...)                                       // cmp $-4096, %rax
	b = append(b, 0x77, stubBack-36)                                         // ja back
	b = le.AppendUint32(append(b, 0x4c, 0x8d, 0x1d), uint32(next-(addr+43))) // lea next(%rip), %r11
	b = le.AppendUint32(append(b, 0xff, 0x25), stubSlot-stubBack)            // jmp *slot(%rip)
	b = le.AppendUint32(append(b, 0xe9), uint32(next-(addr+stubTrap)))       // back: jmp next
	b = append(b, 0xcc, 0xeb, 0x100-8, 0xcc)                                 // trap: int3; jmp back; int3
	b = append(b, make([]byte, stubSlot-len(b))...)
	return le.AppendUint64(b, addr+stubTrap) // slot
}

// appendWay appends 12 bytes that go to the runtime and come back so many bytes behind them, or go there: code at addr.
func appendWay(b []byte, addr, to uint64, behind byte) []byte {
	if to == 0 {
		return append(b, 0xeb, stubCall-2+behind, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc) // jmp
	}
	b = append(b, 0x48, 0x8d, 0x0d, 5+behind, 0, 0, 0)                  // lea 5+behind(%rip), %rcx
	return le.AppendUint32(append(b, 0xe9), uint32(to-(addr+stubCall))) // jmp to
}

// findOpens returns where in code files are opened, by the offset of callAndCheck, as far as nothing can branch into it.
func findOpens(code []byte) (at []int) {
	const moves = 16 // most bytes between the number and the call
	for from := 0; ; {
		i := bytes.Index(code[from:], callAndCheck)
		if i < 0 {
			break
		}
		i += from
		from = i + 1
		head := code[max(0, i-moves-len(openatNumber)):i]
		if k := bytes.LastIndex(head, openatNumber); k >= 0 && !bytes.Contains(head[k:], callAndCheck[:2]) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	into := make(map[int]bool) // offsets behind the first byte of what was found, that something could branch to
	for i := range code {
		to, ok := branch(code[i:])
		if k, found := slices.BinarySearch(at, i+to); ok && !found && k > 0 && i+to < at[k-1]+len(callAndCheck) {
			into[at[k-1]] = true
		}
	}
	return slices.DeleteFunc(at, func(i int) bool { return into[i] })
}

// branch returns how far from b the instruction goes that begins there, if it is a direct branch.
func branch(b []byte) (to int, ok bool) {
	rel := func(n int, wide bool) (int, bool) {
		switch {
		case wide && len(b) >= n+4:
			return n + 4 + int(int32(le.Uint32(b[n:]))), true
		case !wide && len(b) > n:
			return n + 1 + int(int8(b[n])), true
		}
		return 0, false
	}
	switch op := b[0]; {
	case op >= 0x70 && op <= 0x7f, op >= 0xe0 && op <= 0xe3, op == 0xeb:
		return rel(1, false)
	case op == 0xe8, op == 0xe9:
		return rel(1, true)
	case op == 0x0f && len(b) > 1 && b[1] >= 0x80 && b[1] <= 0x8f:
		return rel(2, true)
	}
	return 0, false
}
