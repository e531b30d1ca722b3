package syscalls

import "sync"

// Arguments that mean what others say, or are there only if others say so. Each function appends an argument with what
// is in front of it, and returns false if it was the last.

var variable func() map[string]func(p *printer, i int) bool

func init() {
	variable = sync.OnceValue(func() map[string]func(p *printer, i int) bool {
		return map[string]func(p *printer, i int) bool{
			"mode_create":    modeCreate,
			"mknod_dev":      mknodDevice,
			"fcntl_arg":      fcntlArg,
			"ioctl_cmd":      ioctlCommand,
			"ioctl_arg":      ioctlArg,
			"prctl":          prctlArgs,
			"futex_op":       futexOp,
			"futex_val":      futexValue,
			"futex":          futexRest,
			"clone":          cloneFlags,
			"sock_type":      sockType,
			"sock_proto":     sockProto,
			"sockopt_name":   sockoptName,
			"arch_value":     archValue,
			"mremap_addr":    mremapAddress,
			"membarrier_cpu": membarrierCPU,
			"seccomp_flags":  seccompFlags,
			"seccomp_arg":    seccompArg,
			"sem_arg":        plainAddress,
			"msg_buf":        plainAddress,
			"shm_buf":        plainAddress,
			"waitid_pid":     waitidPID,
			"syslog":         syslogType,
			"syslog_buf":     syslogBuffer,
			"reboot_arg":     rebootArg,
		}
	})
}

// modeCreate is there if a file may be created.
func modeCreate(p *printer, i int) bool {
	const create, tmpfile = 0o100, 0o20000000
	if p.Args[i-1]&(create|tmpfile) == 0 {
		return false
	}
	p.sep(i)
	p.permissions(p.Args[i] & 0xffff)
	return true
}

// mknodDevice is there for devices.
func mknodDevice(p *printer, i int) bool {
	if typ := p.Args[i-1] & 0o170000; typ != 0o20000 && typ != 0o60000 {
		return false
	}
	p.sep(i)
	p.dev(uint64(uint32(p.Args[i])))
	return true
}

// syslogType is a number with its name as a comment; most kinds have no other arguments.
func syslogType(p *printer, i int) bool {
	v := uint64(uint32(p.Args[i]))
	p.sep(i)
	p.uint(v)
	p.str(" /* ")
	p.enum("syslog", v)
	p.str(" */")
	return v >= 2 && v <= 4 || v == 8
}

func syslogBuffer(p *printer, i int) bool {
	p.sep(i)
	if p.Args[0] > 4 || !p.Ended || p.failed() {
		p.address(p.Args[i])
	} else {
		p.mem = p.Out
		p.data(p.Args[i], int(int32(p.Result)))
	}
	return true
}

// rebootArg is there for the command that has one.
func rebootArg(p *printer, i int) bool {
	const restart2 = 0xa1b2c3d4
	if uint32(p.Args[2]) != restart2 {
		return false
	}
	return plainAddress(p, i)
}

func plainAddress(p *printer, i int) bool {
	p.sep(i)
	p.address(p.Args[i])
	return true
}

// fcntl's commands, by what their argument is.
const (
	fDupFD, fGetFD, fSetFD, fGetFL, fSetFL      = 0, 1, 2, 3, 4
	fGetLK, fSetLK, fSetLKW                     = 5, 6, 7
	fSetOwn, fGetOwn, fSetSig, fGetSig          = 8, 9, 10, 11
	fSetOwnEx, fGetOwnEx                        = 15, 16
	fOFDGetLK, fOFDSetLK, fOFDSetLKW            = 36, 37, 38
	fSetLease, fGetLease, fNotify, fDupFDCloexe = 1024, 1025, 1026, 1030
	fSetPipe, fGetPipe, fAddSeals, fGetSeals    = 1031, 1032, 1033, 1034
)

func fcntlArg(p *printer, i int) bool {
	v := p.Args[i]
	cmd := uint32(p.Args[1])
	switch cmd {
	case fGetFD, fGetFL, fGetOwn, fGetSig, fGetLease, fGetPipe, fGetSeals:
		return false
	}
	p.sep(i)
	switch cmd {
	case fDupFD, fDupFDCloexe, fSetOwn, fSetPipe:
		p.int(int64(int32(v)))
	case fSetFD:
		p.flags("fd_flags", uint64(uint32(v)))
	case fSetFL:
		p.openFlags(v)
	case fSetSig:
		p.signal(uint64(uint32(v)))
	case fSetLease:
		p.enum("lock_type", v)
	case fAddSeals:
		p.flags("seals", uint64(uint32(v)))
	case fGetLK, fSetLK, fSetLKW, fOFDGetLK, fOFDSetLK, fOFDSetLKW:
		p.mem = p.In
		get := cmd == fGetLK || cmd == fOFDGetLK
		if get && p.Ended && !p.failed() {
			p.mem = p.Out
		}
		if b, ok := p.mem.read(v, 32); ok {
			p.flock(b, get)
		} else {
			p.address(v)
		}
	default:
		p.hex(v)
	}
	return true
}

// flock appends a lock; with pid of one that was asked for.
func (p *printer) flock(b []byte, pid bool) {
	p.str("{")
	p.field("l_type")
	p.enum("lock_type", uint64(le16(b)))
	p.field("l_whence")
	p.enum("seek", uint64(le16(b[2:])))
	p.intField("l_start", int64(le64(b[8:])))
	p.intField("l_len", int64(le64(b[16:])))
	if pid {
		p.intField("l_pid", int64(int32(le32(b[24:]))))
		p.task(int(int32(le32(b[24:]))))
	}
	p.str("}")
}

// fcntlResult appends a result that means what the command says.
func (p *printer) fcntlResult() {
	v := p.Result
	switch uint32(p.Args[1]) {
	case fGetFD:
		p.hex(v)
		if v != 0 {
			p.str(" (flags ")
			p.flags("fd_flags", v)
			p.str(")")
		}
	case fGetFL:
		p.hex(v)
		p.str(" (flags ")
		p.openFlags(v)
		p.str(")")
	case fGetLease:
		p.hex(v)
		p.str(" (")
		p.enum("lock_type", v)
		p.str(")")
	case fGetSeals:
		p.hex(v)
		if v != 0 {
			p.str(" (seals ")
			p.flags("seals", v)
			p.str(")")
		}
	case fGetSig:
		p.int(int64(v))
		if v != 0 {
			p.str(" (")
			p.signal(v)
			p.str(")")
		}
	default:
		p.int(int64(v))
	}
}

// waitidPID is whom waitid waits for.
func waitidPID(p *printer, i int) bool {
	p.sep(i)
	p.int(int64(int32(p.Args[i])))
	if p.Args[0] == 1 {
		p.task(int(int32(p.Args[i])))
	}
	return true
}

// Operations of arch_prctl whose result is in memory.
const archGetFS, archGetGS = 0x1003, 0x1004

func archValue(p *printer, i int) bool {
	p.sep(i)
	switch p.Args[0] {
	case archGetFS, archGetGS:
		if b, ok := p.Out.read(p.Args[i], 8); ok && !p.failed() {
			p.bracketed(func() { p.hex(le64(b)) })
			return true
		}
	}
	p.hex(p.Args[i])
	return true
}

// mremapAddress is there if the new place is said.
func mremapAddress(p *printer, i int) bool {
	const fixed, dontUnmap = 2, 4
	if p.Args[3]&(fixed|dontUnmap) == 0 {
		return false
	}
	p.sep(i)
	p.address(p.Args[i])
	return true
}

func membarrierCPU(p *printer, i int) bool {
	if p.Args[1]&1 == 0 {
		return false
	}
	p.sep(i)
	p.int(int64(int32(p.Args[i])))
	return true
}

func seccompFlags(p *printer, i int) bool {
	p.sep(i)
	v := uint64(uint32(p.Args[i]))
	if p.Args[0] == 1 {
		p.flags("seccomp_filter", v)
	} else {
		p.hex(v)
	}
	return true
}

func seccompArg(p *printer, i int) bool {
	p.sep(i)
	v := p.Args[i]
	b, ok := p.In.read(v, 16)
	if p.Args[0] != 1 || !ok {
		p.address(v)
		return true
	}
	p.str("{")
	p.uintField("len", uint64(le16(b)))
	p.field("filter")
	p.address(le64(b[8:]))
	p.str("}")
	return true
}
