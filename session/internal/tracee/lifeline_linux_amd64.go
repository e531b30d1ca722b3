package tracee

import (
	"bytes"
	"debug/elf"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// The way back of a thread that a recorder makes calls with: code that it goes through by itself if the recorder is killed.
//
//	syscall                    ; a call that the recorder has it make
//	movl $-1, fd ...           ; that was to make descriptors, and has failed: the kernel has written numbers of none
//	sendto, recvfrom           ; a routine that was called has returned: the recorder hears it, and stops the thread
//	xchg $-1, fd; close ...    ; descriptors are closed that it was given meanwhile, once
//	lea flags(%rip), %rsp      ; flags and registers are what they were
//	popf
//	mov $sp, %rsp
//	...
//	syscall                    ; rt_sigprocmask(SIG_SETMASK, mask, 0, 8)
//	mov $rax, %rax ...
//	jmp *pc(%rip)
//
// It stands behind the code of an image, where the rest of the last page is empty: that of the vdso usually. Processes that
// begin in the middle of a call have what stood there then, and so has a process whose recorder was killed: threads may be
// there for longer. So it is erased at the end, and only an empty place is taken.

// lifeline is such code.
type lifeline struct {
	mem  *Process
	at   uint64
	regs *registers // to go on with
	mask uint64
	// files are addresses of words with descriptors that are closed on the way, and then -1.
	files []uint64
	// making: the call is to make files, all of them or none, and writes their numbers in any case.
	making bool
	// socket is a descriptor by which the thread says that it comes from a routine; room is for what it hears.
	socket int
	room   uint64

	startAt, endAt int // behind at: where it begins, and behind the call that restores the mask
}

// lifelineSize is how much room the code takes at most: it has no more than mostFiles.
const lifelineSize, mostFiles = 400, 3

var errNoLifeline = errors.New("no room behind its code for what leads a thread back")

func (w *lifeline) call() uint64       { return w.at }
func (w *lifeline) called() uint64     { return w.at + uint64(len(syscallInsn)) }
func (w *lifeline) say() uint64        { return w.called() + madeSize }
func (w *lifeline) start() uint64      { return w.at + uint64(w.startAt) }
func (w *lifeline) close(i int) uint64 { return w.start() + uint64(i*closeSize) }
func (w *lifeline) end() uint64        { return w.at + uint64(w.endAt) }

// closeSize is the length of the code that closes a file.
const closeSize = 23

// madeSize is the length of the code that has files forgotten that were not made, forgetSize that for one of them.
const madeSize, forgetSize = 5 + mostFiles*forgetSize, 13

// code is the machine code.
func (w *lifeline) code() []byte {
	// Of a system call that is to be made again, the kernel would go back to the instruction. Without a signal, all of these
	// results mean that.
	regs := *w.regs
	if regs.again() {
		block := -int64(regs.Rax) == lastRestart
		regs.Rip -= uint64(len(syscallInsn))
		regs.Rax = regs.Orig_rax
		if block {
			regs.Rax = unix.SYS_RESTART_SYSCALL
		}
	}
	const flagsAt, maskAt, pcAt = lifelineSize - 24, lifelineSize - 16, lifelineSize - 8
	var b []byte
	add := func(code ...byte) { b = append(b, code...) }
	relative := func(to int) { b = le.AppendUint32(b, uint32(to-len(b)-4)) }
	constant := func(rex, op byte, v uint64) { b = le.AppendUint64(append(b, rex, op), v) }

	add(syscallInsn...)
	if w.making {
		add(0x48, 0x85, 0xc0)                    // test %rax, %rax
		add(0x79, byte(len(w.files)*forgetSize)) // jns behind
		for _, f := range w.files {
			constant(0x48, 0xbf, f) // mov $f, %rdi
			add(0x83, 0x0f, 0xff)   // orl $-1, (%rdi)
		}
	}
	add(bytes.Repeat([]byte{0x90}, len(syscallInsn)+madeSize-len(b))...) // what follows stays where it is
	add(0xbf)                                                            // mov $socket, %edi
	b = le.AppendUint32(b, uint32(w.socket))                             //
	constant(0x48, 0xbe, w.room)                                         // mov $room, %rsi
	add(0xba, 1, 0, 0, 0)                                                // mov $1, %edx
	add(0x41, 0xba, 0, unix.MSG_NOSIGNAL>>8)                             // mov $MSG_NOSIGNAL, %r10d
	add(0, 0, 0x45, 0x31, 0xc0)                                          // xor %r8d, %r8d
	add(0x45, 0x31, 0xc9)                                                // xor %r9d, %r9d
	add(0xb8, unix.SYS_SENDTO, 0, 0, 0)                                  // mov $SYS_sendto, %eax
	add(syscallInsn...)                                                  //
	add(0x45, 0x31, 0xd2)                                                // xor %r10d, %r10d
	add(0xb8, unix.SYS_RECVFROM, 0, 0, 0)                                // mov $SYS_recvfrom, %eax
	add(syscallInsn...)                                                  //
	w.startAt = len(b)                                                   //
	for _, f := range w.files {                                          //
		constant(0x48, 0xbf, f)            // mov $f, %rdi
		add(0x83, 0xc8, 0xff)              // or $-1, %eax
		add(0x87, 0x07)                    // xchg %eax, (%rdi)
		add(0x97)                          // xchg %eax, %edi
		add(0xb8, unix.SYS_CLOSE, 0, 0, 0) // mov $SYS_close, %eax
		add(syscallInsn...)                //
	}
	add(bytes.Repeat([]byte{0x90}, w.startAt+mostFiles*closeSize-len(b))...) // what follows stays where it is
	add(0x48, 0x8d, 0x25)                                                    // lea flags(%rip), %rsp
	relative(flagsAt)                                                        //
	add(0x9d)                                                                // popf
	constant(0x48, 0xbc, regs.Rsp)                                           // mov $sp, %rsp
	add(0xb8, unix.SYS_RT_SIGPROCMASK, 0, 0, 0)                              // mov $SYS_rt_sigprocmask, %eax
	add(0xbf, unix.SIG_SETMASK, 0, 0, 0)                                     // mov $SIG_SETMASK, %edi
	add(0x48, 0x8d, 0x35)                                                    // lea mask(%rip), %rsi
	relative(maskAt)                                                         //
	add(0xba, 0, 0, 0, 0)                                                    // mov $0, %edx
	add(0x41, 0xba, 8, 0, 0, 0)                                              // mov $8, %r10d
	add(syscallInsn...)                                                      //
	w.endAt = len(b)                                                         //
	for _, m := range []struct {
		rex, op byte
		v       uint64
	}{ // mov $v, %register
		{0x48, 0xb8, regs.Rax}, {0x48, 0xb9, regs.Rcx}, {0x48, 0xba, regs.Rdx}, {0x48, 0xbb, regs.Rbx}, {0x48, 0xbd, regs.Rbp},
		{0x48, 0xbe, regs.Rsi}, {0x48, 0xbf, regs.Rdi}, {0x49, 0xb8, regs.R8}, {0x49, 0xb9, regs.R9}, {0x49, 0xba, regs.R10},
		{0x49, 0xbb, regs.R11}, {0x49, 0xbc, regs.R12}, {0x49, 0xbd, regs.R13}, {0x49, 0xbe, regs.R14}, {0x49, 0xbf, regs.R15},
	} {
		constant(m.rex, m.op, m.v)
	}
	add(0xff, 0x25) // jmp *pc(%rip)
	relative(pcAt)
	b = append(b, make([]byte, flagsAt-len(b))...)
	for _, v := range []uint64{regs.Eflags, w.mask, regs.Rip} {
		b = le.AppendUint64(b, v)
	}
	return b
}

// write writes it: it lies in one page, so whoever is killed meanwhile has written all or nothing.
func (w *lifeline) write() error { return w.mem.WriteAt(w.code(), w.at) }

// erase leaves the place as it was.
func (w *lifeline) erase() error { return w.mem.WriteAt(make([]byte, lifelineSize), w.at) }

// roomForLifeline returns an address where the code has room. ms are the process's mappings.
func roomForLifeline(mem *Process, ms []mapping) (uint64, error) {
	for _, vdso := range []bool{true, false} {
		for _, m := range ms {
			if vdso != (m.path == "[vdso]") || !m.begins() {
				continue
			}
			for _, a := range behindCode(mem, ms, m, vdso) {
				if at := empty(mem, a); at != 0 {
					return at, nil
				}
			}
		}
	}
	return 0, errNoLifeline
}

// begins tells whether a mapping has the beginning of a file.
func (m *mapping) begins() bool { return strings.HasPrefix(m.key, "00000000 ") }

// behindCode returns the areas of the image that begins with a mapping which nobody uses: what is left of the last pages of
// its code. In the vdso a table of sections is there first, which some look at.
func behindCode(mem *Process, ms []mapping, first mapping, vdso bool) (areas []area) {
	const mostHeaders = 64
	b := make([]byte, PageSize)
	if mem.ReadAt(b, first.lo) != nil || !bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
		return nil
	}
	at, n := le.Uint64(b[32:]), uint64(le.Uint16(b[56:]))
	sections := le.Uint64(b[40:]) + uint64(le.Uint16(b[58:]))*uint64(le.Uint16(b[60:]))
	if n > mostHeaders || at > PageSize || at+n*Phentsize > PageSize {
		return nil
	}
	bias, found := uint64(0), false
	for h := b[at : at+n*Phentsize]; len(h) > 0; h = h[Phentsize:] {
		address, size := le.Uint64(h[16:]), le.Uint64(h[40:])
		if le.Uint32(h) != uint32(elf.PT_LOAD) {
			continue
		}
		if !found {
			bias, found = first.lo-address&^(PageSize-1), true
		}
		if le.Uint32(h[4:])&uint32(elf.PF_X) == 0 {
			continue
		}
		end := bias + address + size
		if vdso {
			end = max(end, bias+sections)
		}
		a := area{end, pageUp(end) - end}
		if slices.ContainsFunc(ms, func(m mapping) bool {
			return m.perms == "r-xp" && m.path == first.path && m.lo < end && pageUp(end) <= m.hi
		}) {
			areas = append(areas, a)
		}
	}
	return areas
}

// empty returns where in an area nothing is; 0: nowhere.
func empty(mem *Process, a area) uint64 {
	const align = 16
	b := make([]byte, a.size)
	if mem.ReadAt(b, a.at) != nil {
		return 0
	}
	for off := -a.at & (align - 1); off+lifelineSize <= a.size; off += lifelineSize {
		if len(bytes.Trim(b[off:off+lifelineSize], "\x00")) == 0 {
			return a.at + off
		}
	}
	return 0
}
