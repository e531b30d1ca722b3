package syscalls

// Processes: how they begin and end, what they may use.

func (p *printer) waitStatus(b []byte) {
	p.bracketed(func() {
		st := le32(b)
		sig := uint64(st & 0x7f)
		switch {
		case st == 0xffff:
			p.str("{WIFCONTINUED(s)}")
		case st&0xff == 0x7f:
			p.str("{WIFSTOPPED(s) && WSTOPSIG(s) == ")
			p.signal(uint64(st >> 8 & 0xff))
			p.str("}")
		case sig == 0:
			p.str("{WIFEXITED(s) && WEXITSTATUS(s) == ")
			p.uint(uint64(st >> 8 & 0xff))
			p.str("}")
		default:
			p.str("{WIFSIGNALED(s) && WTERMSIG(s) == ")
			p.signal(sig)
			if st&0x80 != 0 {
				p.str(" && WCOREDUMP(s)")
			}
			p.str("}")
		}
	})
}

func (p *printer) rusage(b []byte) {
	p.str("{")
	p.field("ru_utime")
	p.timeval(b)
	p.field("ru_stime")
	p.timeval(b[16:])
	for i, name := range []string{"ru_maxrss", "ru_ixrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap",
		"ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw"} {
		p.uintField(name, le64(b[32+8*i:]))
	}
	p.str("}")
}

func (p *printer) rlimit(b []byte) {
	p.str("{")
	for i, name := range []string{"rlim_cur", "rlim_max"} {
		p.field(name)
		switch v := le64(b[8*i:]); {
		case v == ^uint64(0):
			p.str("RLIM64_INFINITY")
		case v > 1024 && v%1024 == 0:
			p.uint(v / 1024)
			p.str("*1024")
		default:
			p.uint(v)
		}
	}
	p.str("}")
}

// cloneArgs appends the struct of clone3, of which the program says how long it is.
func (p *printer) cloneArgs(s *spec, v uint64) {
	size := p.elements(s)
	b, ok := p.mem.read(v, max(0, min(size, 88)))
	if !ok || size < 64 {
		p.address(v)
		return
	}
	word := func(i int) uint64 {
		if len(b) >= 8*i+8 {
			return le64(b[8*i:])
		}
		return 0
	}
	flags := word(0)
	p.str("{")
	p.flagsField("flags", "clone", flags)
	if flags&0x1000 != 0 {
		p.field("pidfd")
		p.address(word(1))
	}
	if flags&(0x1000000|0x200000) != 0 {
		p.field("child_tid")
		p.address(word(2))
	}
	if flags&0x100000 != 0 {
		p.field("parent_tid")
		p.address(word(3))
	}
	p.field("exit_signal")
	p.signal(word(4))
	p.field("stack")
	p.address(word(5))
	p.hexField("stack_size", word(6))
	if flags&0x80000 != 0 {
		p.field("tls")
		p.address(word(7))
	}
	if word(8) != 0 || word(9) != 0 {
		p.field("set_tid")
		p.address(word(8))
		p.uintField("set_tid_size", word(9))
	}
	if flags>>33&1 != 0 {
		p.uintField("cgroup", word(10))
	}
	p.str("}")
	if !p.Ended || p.failed() || flags&0x100000 == 0 {
		return
	}
	if tid, ok := p.Out.read(word(3), 4); ok {
		p.str(" => {parent_tid=[")
		p.int(int64(int32(le32(tid))))
		p.str("]}")
	}
}

// cpuset appends the processors in a set.
func (p *printer) cpuset(s *spec, v uint64) {
	n := p.elements(s)
	b, ok := p.mem.read(v, max(0, min(n, 128)))
	if !ok {
		p.address(v)
		return
	}
	p.str("[")
	sep := ""
	for cpu := range 8 * len(b) {
		if b[cpu/8]>>(cpu%8)&1 != 0 {
			p.str(sep)
			p.int(int64(cpu))
			sep = " "
		}
	}
	p.str("]")
}

func (p *printer) schedAttr(s *spec, v uint64) {
	b, ok := p.mem.read(v, 48)
	if !ok {
		p.address(v)
		return
	}
	p.str("{")
	p.uintField("size", uint64(le32(b)))
	p.field("sched_policy")
	p.enum("sched", uint64(le32(b[4:])))
	p.flagsField("sched_flags", "sched_flags", le64(b[8:]))
	p.intField("sched_nice", int64(int32(le32(b[16:]))))
	p.uintField("sched_priority", uint64(le32(b[20:])))
	p.uintField("sched_runtime", le64(b[24:]))
	p.uintField("sched_deadline", le64(b[32:]))
	p.uintField("sched_period", le64(b[40:]))
	if le32(b) >= 56 {
		if b, ok = p.mem.read(v, 56); ok {
			p.uintField("sched_util_min", uint64(le32(b[48:])))
			p.uintField("sched_util_max", uint64(le32(b[52:])))
		}
	}
	p.str("}")
}

func (p *printer) capHeader(b []byte) {
	p.str("{")
	p.field("version")
	p.enum("cap_version", uint64(le32(b)))
	p.intField("pid", int64(int32(le32(b[4:]))))
	p.str("}")
}

func (p *printer) capData(b []byte) {
	p.str("{")
	for i, name := range []string{"effective", "permitted", "inheritable"} {
		set := uint64(le32(b[4*i:])) | uint64(le32(b[12+4*i:]))<<32
		p.field(name)
		if set == 0 {
			p.str("0")
			continue
		}
		sep, left := "", set
		for _, c := range groups[p.Machine]()["cap"] {
			if set>>c.value&1 != 0 {
				p.str(sep)
				p.str("1<<")
				p.str(c.name)
				sep = "|"
				left &^= 1 << c.value
			}
		}
		if left != 0 {
			p.str(sep)
			p.hex(left)
		}
	}
	p.str("}")
}

func (p *printer) futexWaitv(b []byte) {
	p.str("{")
	p.hexField("val", le64(b))
	p.field("uaddr")
	p.address(le64(b[8:]))
	p.flagsField("flags", "futex2", uint64(le32(b[16:])))
	p.str("}")
}

func (p *printer) sembuf(b []byte) {
	p.str("{")
	p.uintField("sem_num", uint64(le16(b)))
	p.intField("sem_op", int64(int16(le16(b[2:]))))
	p.field("sem_flg")
	p.b = p.Machine.flags(p.b, "sem", uint64(le16(b[4:])), "0")
	p.str("}")
}

// msgbuf appends a message of System V: its type and text.
func (p *printer) msgbuf(s *spec, v uint64) {
	b, ok := p.mem.read(v, 8)
	if !ok {
		p.address(v)
		return
	}
	p.str("{")
	p.intField("mtype", int64(le64(b)))
	p.field("mtext")
	p.data(v+8, p.elements(s))
	p.str("}")
}

func (p *printer) mqAttr(b []byte) {
	p.str("{")
	p.field("mq_flags")
	if f := le64(b); f == 0 {
		p.str("0")
	} else {
		p.flags("open", f)
	}
	for i, name := range []string{"mq_maxmsg", "mq_msgsize", "mq_curmsgs"} {
		p.intField(name, int64(le64(b[8+8*i:])))
	}
	p.str("}")
}
