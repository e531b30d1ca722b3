package syscalls

import (
	"math/bits"
	"strings"
)

// Signals.

// sigsetArg appends a set of signals of as many bytes as an argument says.
func (p *printer) sigsetArg(s *spec, v uint64) {
	size := p.elements(s)
	b, ok := p.mem.read(v, max(0, min(size, 8)))
	if !ok || size < 4 || size > 128 {
		p.address(v)
		return
	}
	var w [8]byte
	copy(w[:], b)
	p.sigset(le64(w[:]))
}

// sigset appends a set: [INT TERM], or what is not in it if that is shorter: ~[KILL STOP].
func (p *printer) sigset(set uint64) {
	if bits.OnesCount64(set) >= 42 {
		p.str("~")
		set = ^set
	}
	p.str("[")
	sep := ""
	for sig := uint64(1); sig <= 64; sig++ {
		if set>>(sig-1)&1 == 0 {
			continue
		}
		p.str(sep)
		n := len(p.b)
		p.signal(sig)
		name := strings.TrimPrefix(string(p.b[n:]), "SIG")
		p.b = append(p.b[:n], name...)
		sep = " "
	}
	p.str("]")
}

// sigsetPair appends pselect6's last argument.
func (p *printer) sigsetPair(b []byte) {
	set, size := le64(b), le64(b[8:])
	p.str("{sigmask=")
	if w, ok := p.mem.read(set, 8); ok && size == 8 {
		p.sigset(le64(w))
	} else {
		p.address(set)
	}
	p.str(", sigsetsize=")
	p.uint(size)
	p.str("}")
}

func (p *printer) sigaction(b []byte) {
	flags := le64(b[8:])
	p.str("{")
	p.field("sa_handler")
	const restorer = 0x4000000
	switch h := le64(b); h {
	case 0:
		p.str("SIG_DFL")
	case 1:
		p.str("SIG_IGN")
	case ^uint64(0):
		p.str("SIG_ERR")
	default:
		p.hex(h)
	}
	p.field("sa_mask")
	p.sigset(le64(b[24:]))
	p.flagsField("sa_flags", "sa", flags)
	if flags&restorer != 0 {
		p.field("sa_restorer")
		p.address(le64(b[16:]))
	}
	p.str("}")
}

// siginfo appends a siginfo_t; which fields it has depends on the signal and who sent it.
func (p *printer) siginfo(b []byte) {
	signo, errno, code := le32(b), int32(le32(b[4:])), int32(le32(b[8:]))
	p.str("{")
	if signo == 0 && code == 0 {
		p.b = p.b[:len(p.b)-1]
		p.str("{}")
		return
	}
	p.field("si_signo")
	p.signal(uint64(signo))
	const chld = 17
	p.field("si_code")
	if signo == chld && code > 0 && code < 0x80 {
		p.enum("si_chld", uint64(code))
	} else {
		p.enum("si_code", uint64(int64(code)))
	}
	if errno != 0 {
		p.field("si_errno")
		p.int(int64(errno))
	}
	pid, uid := int64(int32(le32(b[16:]))), uint64(le32(b[20:]))
	switch {
	case signo == chld && code > 0 && code < 0x80:
		p.intField("si_pid", pid)
		p.task(int(pid))
		p.uintField("si_uid", uid)
		p.field("si_status")
		if code == 1 {
			p.int(int64(int32(le32(b[24:]))))
		} else {
			p.signal(uint64(le32(b[24:])))
		}
		p.uintField("si_utime", le64(b[32:]))
		p.uintField("si_stime", le64(b[40:]))
	case code == 0 || code == -6: // kill and tkill
		p.intField("si_pid", pid)
		p.task(int(pid))
		p.uintField("si_uid", uid)
	case code == -1 || code == -3: // sigqueue and message queues
		p.intField("si_pid", pid)
		p.task(int(pid))
		p.uintField("si_uid", uid)
		p.sigval(b[24:])
	case code == -2: // timers
		p.field("si_timerid")
		p.hex(uint64(le32(b[16:])))
		p.intField("si_overrun", int64(int32(le32(b[20:]))))
		p.sigval(b[24:])
	case code > 0 && (signo == 4 || signo == 5 || signo == 7 || signo == 8 || signo == 11):
		p.field("si_addr")
		p.address(le64(b[16:]))
	}
	p.str("}")
}

// sigval appends both members of a union sigval.
func (p *printer) sigval(b []byte) {
	p.field("si_int")
	p.int(int64(int32(le32(b))))
	p.field("si_ptr")
	p.address(le64(b))
}

func (p *printer) stackT(b []byte) {
	p.str("{")
	p.field("ss_sp")
	p.address(le64(b))
	p.flagsField("ss_flags", "ss", uint64(le32(b[8:])))
	p.uintField("ss_size", le64(b[16:]))
	p.str("}")
}

func (p *printer) sigevent(b []byte) {
	p.str("{")
	if le64(b) != 0 {
		p.field("sigev_value")
		p.str("{sival_int=")
		p.int(int64(int32(le32(b))))
		p.str(", sival_ptr=")
		p.address(le64(b))
		p.str("}")
	}
	notify := le32(b[12:])
	p.field("sigev_signo")
	if notify == 1 || notify == 2 {
		p.uint(uint64(le32(b[8:])))
	} else {
		p.signal(uint64(le32(b[8:])))
	}
	p.field("sigev_notify")
	p.enum("sigev", uint64(notify))
	if notify == 4 {
		p.intField("sigev_notify_thread_id", int64(int32(le32(b[16:]))))
		p.task(int(int32(le32(b[16:]))))
	}
	p.str("}")
}
