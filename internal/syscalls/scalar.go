package syscalls

// Arguments that are values.

// atFDCWD is the directory descriptor that means the working directory.
const atFDCWD = -100

// scalar appends an argument that points to nothing that is shown.
func (p *printer) scalar(s *spec, v uint64) {
	switch s.kind {
	case "d", "skip":
		p.int(int64(int32(v)))
	case "fd":
		p.int(int64(int32(v)))
	case "ld":
		p.int(int64(v))
	case "u":
		p.uint(uint64(uint32(v)))
	case "lu":
		p.uint(v)
	case "x":
		p.hex(v)
	case "x32":
		p.hex(uint64(uint32(v)))
	case "o", "mode":
		p.permissions(v & 0xffff)
	case "ptr":
		p.address(v)
	case "dirfd":
		if int32(v) == atFDCWD {
			p.str("AT_FDCWD")
		} else {
			p.int(int64(int32(v)))
		}
	case "pid":
		p.int(int64(int32(v)))
		p.task(int(int32(v)))
	case "uid":
		p.uid(v)
	case "signal":
		p.signal(uint64(uint32(v)))
	case "key":
		if uint32(v) == 0 {
			p.str("IPC_PRIVATE")
		} else {
			p.hex(uint64(uint32(v)))
		}
	case "keyring":
		p.keyring(v)
	case "dev":
		p.dev(v)
	case "file_mode":
		p.fileMode(v & 0xffff)
	case "mmap_flags":
		p.mmapFlags(v)
	case "ipc_flags":
		p.ipcFlags(v)
	case "ioprio":
		p.ioprio(v)
	case "qcmd":
		p.str("QCMD(")
		p.enum("quota", uint64(uint32(v))>>8)
		p.str(", ")
		p.enum("quota_type", v&0xff)
		p.str(")")
	case "mode_access":
		if v == 0 {
			p.str("F_OK")
		} else {
			p.orderedAccess(v)
		}
	case "enum":
		p.enumArg(s.group, v)
	case "enum_flags":
		p.schedPolicy(v)
	case "flags":
		p.flagsArg(s.group, v)
	default:
		p.hex(v)
	}
}

// enumArg appends a value of a group: 32 bits, as most are.
func (p *printer) enumArg(group string, v uint64) {
	switch group {
	case "clock":
		if int32(v) < 0 { // of a process, thread or descriptor
			p.int(int64(int32(v)))
			return
		}
	}
	p.enum(group, uint64(uint32(v)))
}

func (p *printer) flagsArg(group string, v uint64) {
	switch group {
	case "open":
		p.openFlags(v)
		return
	case "statx_flags":
		v = uint64(uint32(v))
		if v&0x6000 == 0 {
			p.str("AT_STATX_SYNC_AS_STAT")
			if v == 0 {
				return
			}
			p.str("|")
		}
	case "prot":
		if v == 0 {
			p.str("PROT_NONE")
			return
		}
	case "mlock", "umount", "at", "at_link", "at_unlink", "faccessat", "msg", "sock_flags", "wait", "open_tree":
		v = uint64(uint32(v))
	}
	p.flags(group, v)
}

// openFlags appends the flags of open: the access mode is none of them.
func (p *printer) openFlags(v uint64) {
	v = uint64(uint32(v))
	p.enum("acc", v&3)
	if v&^3 != 0 {
		p.str("|")
		p.flags("open", v&^3)
	}
}

// orderedAccess appends R_OK|W_OK|X_OK in that order.
func (p *printer) orderedAccess(v uint64) {
	v = uint64(uint32(v))
	sep := ""
	for _, f := range []constant{{"R_OK", 4}, {"W_OK", 2}, {"X_OK", 1}} {
		if v&f.value != 0 {
			p.str(sep)
			p.str(f.name)
			sep = "|"
		}
	}
	if v&^7 != 0 {
		p.str(sep)
		p.hex(v &^ 7)
	}
}

func (p *printer) uid(v uint64) {
	if uint32(v) == 1<<32-1 {
		p.str("-1")
	} else {
		p.uint(uint64(uint32(v)))
	}
}

// realtime signals are counted from SIGRT_0, as the kernel does.
func (p *printer) signal(v uint64) {
	switch {
	case v == 0:
		p.str("0")
	case v >= 32 && v <= 64:
		p.str("SIGRT_")
		p.uint(v - 32)
	default:
		n := len(p.b)
		p.enum("signal", v)
		if p.b[n] == '0' {
			p.b = p.b[:n]
			p.uint(v)
		}
	}
}

// SignalName returns the name of a signal, such as SIGTERM or SIGRT_1.
func (m Machine) SignalName(number uint64) string {
	p := printer{Made: &Made{Machine: m}}
	p.signal(number)
	return string(p.b)
}

func (p *printer) keyring(v uint64) {
	if int32(v) >= 0 {
		p.int(int64(int32(v)))
		return
	}
	p.enum("keyring", v)
}

// dev appends a device number, as makedev makes it.
func (p *printer) dev(v uint64) {
	p.str("makedev(")
	p.hex(v>>8&0xfff | v>>32&^0xfff)
	p.str(", ")
	p.hex(v&0xff | v>>12&^0xff)
	p.str(")")
}

// fileMode appends a file's type and permissions: S_IFREG|0644.
func (p *printer) fileMode(v uint64) {
	if typ := v & 0o170000; typ != 0 {
		p.enum("file_type", typ)
		p.str("|")
	}
	for _, f := range []constant{{"S_ISUID", 0o4000}, {"S_ISGID", 0o2000}, {"S_ISVTX", 0o1000}} {
		if v&f.value != 0 {
			p.str(f.name)
			p.str("|")
		}
	}
	p.permissions(v & 0o777)
}

// permissions appends an octal number of at least three digits, a 0 in front among them.
func (p *printer) permissions(v uint64) {
	if v < 0o100 {
		p.b = append(p.b, '0', '0'+byte(v>>3), '0'+byte(v&7))
		return
	}
	p.octal(v)
}

func (p *printer) mmapFlags(v uint64) {
	const typ = 0xf
	if v == 0 {
		p.str("MAP_FILE")
		return
	}
	p.enum("mmap", v&typ)
	if v &^= typ; v != 0 {
		p.str("|")
		const hugeShift = 26
		huge := v >> hugeShift & 0x3f
		if v&0x40000 == 0 || huge == 0 {
			p.flags("mmap_more", v)
			return
		}
		p.flags("mmap_more", v&^(0x3f<<hugeShift))
		p.str("|")
		p.uint(huge)
		p.str("<<MAP_HUGE_SHIFT")
	}
}

// ipcFlags appends flags and permissions of a new object.
func (p *printer) ipcFlags(v uint64) {
	v = uint64(uint32(v))
	group := "ipc"
	if p.call.Name == "shmget" {
		group = "shm"
	}
	if v&^0o777 != 0 {
		p.flags(group, v&^0o777)
		p.str("|")
	}
	p.permissions(v & 0o777)
}

func (p *printer) ioprio(v uint64) {
	p.str("IOPRIO_PRIO_VALUE(")
	p.enum("ioprio_class", v>>13&7)
	p.str(", ")
	p.uint(v & 0x1fff)
	p.str(")")
}

// schedPolicy appends a policy and its flag.
func (p *printer) schedPolicy(v uint64) {
	const reset = 0x40000000
	p.enum("sched", uint64(uint32(v))&^reset)
	if v&reset != 0 {
		p.str("|SCHED_RESET_ON_FORK")
	}
}
