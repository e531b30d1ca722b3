package tracee

import (
	"bytes"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Processes whose system calls are filtered.
//
// The calls that a thread is made to make pass filters by, for a recorder that may ask for that
// (PTRACE_O_SUSPEND_SECCOMP). That is asked for while the thread is stopped, and not any more when it goes on by itself: its
// own calls are filtered, and so are those of all others. Those that the runtime makes afterwards do not: it lives with calls that fail, but a filter
// can end the process instead, or send a signal. So the filters are read, and asked about each of these calls before
// anything is changed.

// runtimeCalls are the system calls that the runtime makes in a process that it is in, with arguments that stand for all.
var runtimeCalls = []struct {
	name string
	nr   uint32
	args [6]uint64
}{
	{"mmap", unix.SYS_MMAP, [6]uint64{0, PageSize, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, ^uint64(0)}},
	{"munmap", unix.SYS_MUNMAP, [6]uint64{PageSize, PageSize}},
	{"mremap", unix.SYS_MREMAP, [6]uint64{PageSize, PageSize, 2 * PageSize, unix.MREMAP_MAYMOVE}},
	{"madvise", unix.SYS_MADVISE, [6]uint64{PageSize, PageSize, unix.MADV_DONTNEED}},
	{"futex", unix.SYS_FUTEX, [6]uint64{PageSize}},
	{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, [6]uint64{unix.SIG_SETMASK, PageSize, PageSize, 8}},
	{"sigaltstack", unix.SYS_SIGALTSTACK, [6]uint64{0, PageSize}},
	{"prctl", unix.SYS_PRCTL, [6]uint64{unix.PR_GET_NAME, PageSize}},
	{"clock_gettime", unix.SYS_CLOCK_GETTIME, [6]uint64{unix.CLOCK_MONOTONIC, PageSize}},
	{"arch_prctl", unix.SYS_ARCH_PRCTL, [6]uint64{0x1004, PageSize}}, // ARCH_GET_GS
	{"gettid", unix.SYS_GETTID, [6]uint64{}},
	{"getpid", unix.SYS_GETPID, [6]uint64{}},
	{"tgkill", unix.SYS_TGKILL, [6]uint64{1, 1}},
}

// exempt has the system calls of a stopped thread, which is to make some, pass filters by. Only root may do that. What filters
// this process may be what filters that one.
func (t *thread) exempt() error {
	err := t.options(unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_SUSPEND_SECCOMP)
	if err == unix.EPERM {
		if err = nil; seccomp(fmt.Sprintf("/proc/%d", t.pid)) && !seccomp("/proc/thread-self") {
			err = errFiltered
		}
	}
	return err
}

// subject has them be filtered again.
func (t *thread) subject() error { return t.options(unix.PTRACE_O_TRACESYSGOOD) }

// options sets ptrace's options of a stopped thread.
func (t *thread) options(o int) error {
	err := ptrace(unix.PTRACE_SETOPTIONS, t.pid, o)
	if err == unix.ESRCH {
		err = ErrEnded
	}
	return err
}

// seccomp tells whether a thread's system calls are filtered.
func seccomp(dir string) bool {
	b, _ := readFile(dir + "/status")
	return bytes.Contains(b, []byte("\nSeccomp:\t2"))
}

// filtered returns an error if what filters system calls stands against what the runtime does, in a thread that is stopped.
// The threads of a process can have filters of their own, but programs that let the tracer's calls end some threads, and
// not others, are not known.
func (ts *threads) filtered() error {
	for _, t := range ts.all {
		if seccomp(fmt.Sprintf("/proc/%d/task/%d", ts.pid, t.pid)) {
			return t.filters()
		}
	}
	return nil
}

// filters returns an error if a filter of a stopped thread's system calls stands against what the runtime does.
func (t *thread) filters() error {
	for i := 0; ; i++ {
		prog, errno := t.filter(i)
		switch {
		case errno == unix.ENOENT || errno == unix.EINVAL && i == 0:
			return nil // no more, or none
		case errno != 0:
			return fmt.Errorf("its system calls are filtered, and what is allowed to it is not known: PTRACE_SECCOMP_GET_FILTER: %w",
				errno)
		}
		for _, c := range runtimeCalls {
			if a := runFilter(prog, seccompData(c.nr, c.args)); !harmless(a) {
				return fmt.Errorf("its system calls are filtered: %s, which the tracer needs, would end it", c.name)
			}
		}
	}
}

// filter returns a filter of a stopped thread's.
func (t *thread) filter(i int) ([]unix.SockFilter, unix.Errno) {
	const getFilter, most = 0x420c, 1 << 15
	n, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, getFilter, uintptr(t.pid), uintptr(i), 0, 0, 0)
	if errno != 0 || n == 0 || n > most {
		return nil, errno
	}
	prog := make([]unix.SockFilter, n)
	_, _, errno = unix.RawSyscall6(unix.SYS_PTRACE, getFilter, uintptr(t.pid), uintptr(i), uintptr(unsafe.Pointer(&prog[0])), 0, 0)
	return prog, errno
}

// harmless tells whether an action lets the process go on, be it with an error.
func harmless(action uint32) bool {
	switch action & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_LOG:
		return true
	case unix.SECCOMP_RET_ERRNO:
		return action&unix.SECCOMP_RET_DATA != 0 // else it is taken for a result
	}
	return false
}

// seccompData is struct seccomp_data.
func seccompData(nr uint32, args [6]uint64) []byte {
	const auditArch = 0xc000003e // AUDIT_ARCH_X86_64
	b := le.AppendUint32(le.AppendUint32(nil, nr), auditArch)
	b = le.AppendUint64(b, 0) // instruction_pointer
	for _, a := range args {
		b = le.AppendUint64(b, a)
	}
	return b
}

// runFilter returns what a filter says of a system call: classic BPF as seccomp(2) allows it. What cannot be understood
// would end the process.
func runFilter(prog []unix.SockFilter, data []byte) uint32 {
	var a, x uint32
	var m [16]uint32
	word := func(k uint32) uint32 {
		if uint64(k)+4 > uint64(len(data)) {
			return 0
		}
		return le.Uint32(data[k:])
	}
	cell := func(k uint32) *uint32 { return &m[k%uint32(len(m))] }
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		operand := in.K
		if in.Code&unix.BPF_X != 0 {
			operand = x
		}
		switch in.Code & 7 {
		case unix.BPF_LD, unix.BPF_LDX:
			to := &a
			if in.Code&7 == unix.BPF_LDX {
				to = &x
			}
			switch in.Code & 0xe0 {
			case unix.BPF_ABS:
				*to = word(in.K)
			case unix.BPF_IMM:
				*to = in.K
			case unix.BPF_MEM:
				*to = *cell(in.K)
			case unix.BPF_LEN:
				*to = uint32(len(data))
			default:
				return unix.SECCOMP_RET_KILL_PROCESS
			}
		case unix.BPF_ST:
			*cell(in.K) = a
		case unix.BPF_STX:
			*cell(in.K) = x
		case unix.BPF_ALU:
			a = alu(in.Code&0xf0, a, operand)
		case unix.BPF_JMP:
			pc += jump(in, a, operand)
		case unix.BPF_RET:
			if in.Code&0x18 == unix.BPF_A {
				return a
			}
			return in.K
		case unix.BPF_MISC:
			if in.Code&0xf8 == unix.BPF_TXA {
				a = x
			} else {
				x = a
			}
		}
	}
	return unix.SECCOMP_RET_KILL_PROCESS
}

// alu is an arithmetic instruction.
func alu(op uint16, a, b uint32) uint32 {
	switch op {
	case unix.BPF_ADD:
		return a + b
	case unix.BPF_SUB:
		return a - b
	case unix.BPF_MUL:
		return a * b
	case unix.BPF_DIV:
		return a / max(b, 1)
	case unix.BPF_OR:
		return a | b
	case unix.BPF_AND:
		return a & b
	case unix.BPF_XOR:
		return a ^ b
	case unix.BPF_LSH:
		return a << (b & 31)
	case unix.BPF_RSH:
		return a >> (b & 31)
	}
	return -a // BPF_NEG
}

// jump returns how many instructions a jump skips.
func jump(in unix.SockFilter, a, b uint32) int {
	var taken bool
	switch in.Code & 0xf0 {
	case unix.BPF_JA:
		return int(min(in.K, 1<<16))
	case unix.BPF_JEQ:
		taken = a == b
	case unix.BPF_JGT:
		taken = a > b
	case unix.BPF_JGE:
		taken = a >= b
	case unix.BPF_JSET:
		taken = a&b != 0
	}
	if taken {
		return int(in.Jt)
	}
	return int(in.Jf)
}
