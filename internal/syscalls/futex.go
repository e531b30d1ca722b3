package syscalls

// The arguments of futex and clone, which are there as the first of them says.

// Operations of futex.
const (
	futexPrivate, futexClock                                = 128, 256
	futexWait, futexWake, futexRequeue, futexCmpRequeue     = 0, 1, 3, 4
	futexWakeOp, futexLockPI, futexUnlockPI, futexTryLockPI = 5, 6, 7, 8
	futexWaitBitset, futexWakeBitset                        = 9, 10
	futexWaitRequeuePI, futexCmpRequeuePI, futexLockPI2     = 11, 12, 13
)

func futexOp(p *printer, i int) bool {
	p.sep(i)
	v := uint64(uint32(p.Args[i]))
	p.enum("futex_op", v&0x7f)
	if v&futexPrivate != 0 {
		p.str("_PRIVATE")
	}
	if v&futexClock != 0 {
		p.str("|FUTEX_CLOCK_REALTIME")
	}
	return true
}

func futexValue(p *printer, i int) bool {
	switch p.Args[1] & 0x7f {
	case futexLockPI, futexLockPI2:
		p.sep(i)
		p.futexTimeout()
		return false
	case futexUnlockPI, futexTryLockPI:
		return false
	}
	p.sep(i)
	p.uint(uint64(uint32(p.Args[i])))
	return true
}

func (p *printer) futexTimeout() {
	v := p.Args[3]
	p.mem = p.In
	if v == 0 {
		p.str("NULL")
	} else if b, ok := p.In.read(v, 16); ok {
		p.timespec(b)
	} else {
		p.address(v)
	}
}

// futexRest appends what an operation has behind its value.
func futexRest(p *printer, i int) bool {
	val2, addr2, val3 := uint64(uint32(p.Args[3])), p.Args[4], uint64(uint32(p.Args[5]))
	p.sep(i)
	switch p.Args[1] & 0x7f {
	case futexWait:
		p.futexTimeout()
	case futexWaitBitset:
		p.futexTimeout()
		p.str(", ")
		p.bitset(val3)
	case futexWakeBitset:
		p.bitset(val3)
	case futexRequeue:
		p.uint(val2)
		p.str(", ")
		p.address(addr2)
	case futexCmpRequeue, futexCmpRequeuePI:
		p.uint(val2)
		p.str(", ")
		p.address(addr2)
		p.str(", ")
		p.uint(val3)
	case futexWakeOp:
		p.uint(val2)
		p.str(", ")
		p.address(addr2)
		p.str(", ")
		p.wakeOp(uint32(val3))
	case futexWaitRequeuePI:
		p.futexTimeout()
		p.str(", ")
		p.address(addr2)
	default:
		p.b = p.b[:len(p.b)-len(", ")]
	}
	return false
}

func (p *printer) bitset(v uint64) {
	if v == 0xffffffff {
		p.str("FUTEX_BITSET_MATCH_ANY")
	} else {
		p.hex(v)
	}
}

// wakeOp appends FUTEX_OP_SET<<28|0<<12|FUTEX_OP_CMP_EQ<<24|0x1.
func (p *printer) wakeOp(v uint32) {
	ops := []string{"SET", "ADD", "OR", "ANDN", "XOR"}
	cmps := []string{"EQ", "NE", "LT", "LE", "GT", "GE"}
	if v>>31 != 0 {
		p.str("FUTEX_OP_OPARG_SHIFT<<28|")
	}
	if op := v >> 28 & 7; int(op) < len(ops) {
		p.str("FUTEX_OP_" + ops[op])
	} else {
		p.hex(uint64(op))
	}
	p.str("<<28|")
	p.hex(uint64(v >> 12 & 0xfff))
	p.str("<<12|")
	if c := v >> 24 & 0xf; int(c) < len(cmps) {
		p.str("FUTEX_OP_CMP_" + cmps[c])
	} else {
		p.hex(uint64(c))
	}
	p.str("<<24|")
	p.hex(uint64(v & 0xfff))
}

// Flags of clone that say what the third argument is.
const cloneParentTID, clonePIDFD = 0x100000, 0x1000

// cloneFlags appends all arguments of clone, by their names and as its flags say. The last two have changed places on
// arm64.
func cloneFlags(p *printer, _ int) bool {
	flags, stack, parent := p.Args[0], p.Args[1], p.Args[2]
	child, tls := p.Args[3], p.Args[4]
	if p.Machine == ARM64 {
		child, tls = tls, child
	}
	p.str("child_stack=")
	p.address(stack)
	p.str(", flags=")
	if f := flags &^ 0xff; f != 0 {
		p.flags("clone", f)
		if flags&0xff != 0 {
			p.str("|")
		}
	}
	if sig := flags & 0xff; sig != 0 {
		p.signal(sig)
	} else if flags == 0 {
		p.str("0")
	}
	const setTLS, childTID = 0x80000, 0x1000000 | 0x200000
	if flags&(cloneParentTID|clonePIDFD) != 0 {
		p.str(", parent_tid=")
		if b, ok := p.Out.read(parent, 4); ok && p.Ended && !p.failed() {
			p.bracketed(func() { p.int(int64(int32(le32(b)))) })
		} else {
			p.address(parent)
		}
	}
	if flags&setTLS != 0 {
		p.str(", tls=")
		p.hex(tls)
	}
	if flags&childTID != 0 {
		p.str(", child_tidptr=")
		p.address(child)
	}
	return false
}
