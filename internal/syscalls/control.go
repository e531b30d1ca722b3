package syscalls

// ioctl and prctl, each of which is many calls.

func ioctlCommand(p *printer, i int) bool {
	p.sep(i)
	v := uint64(uint32(p.Args[i]))
	for _, c := range groups[p.Machine]()["ioctl"] {
		if uint64(uint32(c.value)) == v {
			p.str(c.name)
			return true
		}
	}
	// The direction, type, number and size that a command is made of.
	const dirShift, sizeShift, sizeMask, typeShift = 30, 16, 0x3fff, 8
	dirs := []string{"_IOC_NONE", "_IOC_WRITE", "_IOC_READ", "_IOC_READ|_IOC_WRITE"}
	p.str("_IOC(")
	p.str(dirs[v>>dirShift])
	p.str(", ")
	p.hex(v >> typeShift & 0xff)
	p.str(", ")
	p.hex(v & 0xff)
	p.str(", ")
	p.hex(v >> sizeShift & sizeMask)
	p.str(")")
	return true
}

// Commands whose argument is known.
const (
	tcGets, tcSets, tcSetsW, tcSetsF = 0x5401, 0x5402, 0x5403, 0x5404
	tiocGWinsz, tiocSWinsz           = 0x5413, 0x5414
	tiocGPgrp, tiocSPgrp, tiocGSID   = 0x540f, 0x5410, 0x5429
	fioClex, fioNClex, tiocNoTTY     = 0x5451, 0x5450, 0x5422
)

func ioctlArg(p *printer, i int) bool {
	v := p.Args[i]
	cmd := uint64(uint32(p.Args[1]))
	switch cmd {
	case fioClex, fioNClex, tiocNoTTY:
		return false
	}
	p.sep(i)
	read := func(n int, exit bool) ([]byte, bool) {
		if exit {
			if !p.Ended || p.failed() {
				return nil, false
			}
			return p.Out.read(v, n)
		}
		return p.In.read(v, n)
	}
	switch {
	case cmd == tcGets || cmd == tcSets || cmd == tcSetsW || cmd == tcSetsF:
		if b, ok := read(36, cmd == tcGets); ok {
			p.termios(b)
			return true
		}
	case cmd == tiocGWinsz || cmd == tiocSWinsz:
		if b, ok := read(8, cmd == tiocGWinsz); ok {
			p.str("{")
			for j, name := range []string{"ws_row", "ws_col", "ws_xpixel", "ws_ypixel"} {
				p.uintField(name, uint64(le16(b[2*j:])))
			}
			p.str("}")
			return true
		}
	case contains(ioctlGivesInt, cmd), contains(ioctlFillsInt, cmd):
		if b, ok := read(4, contains(ioctlFillsInt, cmd)); ok {
			p.bracketed(func() { p.int(int64(int32(le32(b)))) })
			return true
		}
	}
	p.address(v)
	if v == 0 {
		p.b = append(p.b[:len(p.b)-len("NULL")], '0')
		if cmd>>30 != 0 || cmd>>8 == 0x54 {
			p.b = append(p.b[:len(p.b)-1], "NULL"...)
		}
	}
	return true
}

func contains(list []uint64, v uint64) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// termios appends a terminal's modes.
func (p *printer) termios(b []byte) {
	iflag, oflag, cflag, lflag := uint64(le32(b)), uint64(le32(b[4:])), uint64(le32(b[8:])), uint64(le32(b[12:]))
	p.str("{")
	p.flagsField("c_iflag", "tc_iflag", iflag)
	p.field("c_oflag")
	p.outputFlags(oflag)
	p.field("c_cflag")
	const baud, size = 0o10017, 0o60
	p.enum("tc_baud", cflag&baud)
	p.str("|")
	p.enum("tc_csize", cflag&size)
	if rest := cflag &^ (baud | size); rest != 0 {
		p.str("|")
		p.flags("tc_cflag", rest)
	}
	p.flagsField("c_lflag", "tc_lflag", lflag)
	p.str(", c_line=")
	if b[16] == 0 {
		p.str("N_TTY")
	} else {
		p.hex(uint64(b[16]))
	}
	p.controlChars(b[17:36])
	p.str("}")
}

// outputFlags appends what is done to output: delays are values among the flags.
func (p *printer) outputFlags(v uint64) {
	delays := []struct {
		mask  uint64
		shift int
		name  string
	}{{0x100, 8, "NL"}, {0x600, 9, "CR"}, {0x1800, 11, "TAB"}, {0x2000, 13, "BS"}, {0x4000, 14, "VT"}, {0x8000, 15, "FF"}}
	for _, d := range delays {
		p.str(d.name)
		p.uint(v & d.mask >> d.shift)
		p.str("|")
		v &^= d.mask
	}
	if v == 0 {
		p.b = p.b[:len(p.b)-1]
		return
	}
	p.flags("tc_oflag", v)
}

// controlChars appends the characters by their names.
func (p *printer) controlChars(c []byte) {
	names := []string{"VINTR", "VQUIT", "VERASE", "VKILL", "VEOF", "VTIME", "VMIN", "VSWTC", "VSTART", "VSTOP", "VSUSP",
		"VEOL", "VREPRINT", "VDISCARD", "VWERASE", "VLNEXT", "VEOL2", "17", "18"}
	p.str(", c_cc=[")
	for i, v := range c[:min(len(c), len(names))] {
		p.sep(i)
		p.str("[" + names[i] + "]=")
		p.hex(uint64(v))
	}
	p.str("]")
}

// Operations of prctl.
const (
	prSetPDeathSig, prGetPDeathSig                  = 1, 2
	prGetDumpable, prSetDumpable                    = 3, 4
	prGetKeepCaps, prSetKeepCaps                    = 7, 8
	prSetName, prGetName                            = 15, 16
	prGetSeccomp, prSetSeccomp                      = 21, 22
	prCapRead, prCapDrop                            = 23, 24
	prGetTSC                                        = 25
	prGetTimerSlack, prSetTimerSlack                = 30, 29
	prSetChildSubreaper, prGetChildSubreaper        = 36, 37
	prSetNoNewPrivs, prGetNoNewPrivs                = 38, 39
	prGetTHP, prCapAmbient                          = 42, 47
	prSetVMA                                 uint32 = 0x53564d41
)

// prctlArgs appends all that follows the operation.
func prctlArgs(p *printer, i int) bool {
	v := p.Args[i]
	switch op := uint32(p.Args[0]); op {
	case prGetDumpable, prGetKeepCaps, prGetSeccomp, prGetTimerSlack:
		return false
	case prSetPDeathSig:
		p.sep(i)
		p.signal(v)
	case prGetPDeathSig, prGetChildSubreaper, prGetTSC:
		p.sep(i)
		p.filledInt(v, op == prGetPDeathSig)
	case prSetDumpable:
		p.sep(i)
		p.enum("dumpable", v)
	case prSetName, prGetName:
		p.sep(i)
		p.mem = p.In
		if op == prGetName {
			p.mem = p.Out
		}
		p.text(v, 16)
	case prSetSeccomp:
		p.sep(i)
		p.enum("seccomp_mode", v)
		if v == 2 {
			p.str(", ")
			p.address(p.Args[2])
		}
	case prCapRead, prCapDrop:
		p.sep(i)
		p.enum("cap", v)
	case prSetKeepCaps, prSetTimerSlack, prSetChildSubreaper:
		p.sep(i)
		p.uint(v)
	case prCapAmbient:
		p.sep(i)
		p.enum("ambient", v)
		p.str(", ")
		p.enum("cap", p.Args[2])
		p.restHex(3)
	case prSetNoNewPrivs:
		p.sep(i)
		p.uint(v)
		p.restHex(2)
	case prGetNoNewPrivs, prGetTHP:
		p.restHex(1)
	default:
		p.restHex(1)
	}
	return false
}

// filledInt appends a number that the kernel has filled in.
func (p *printer) filledInt(v uint64, signal bool) {
	b, ok := p.Out.read(v, 4)
	if !ok || p.failed() {
		p.address(v)
		return
	}
	p.bracketed(func() {
		if signal {
			p.signal(uint64(le32(b)))
		} else {
			p.uint(uint64(le32(b)))
		}
	})
}

// restHex appends the arguments from i to the fifth.
func (p *printer) restHex(i int) {
	for ; i < 5; i++ {
		p.sep(i)
		p.hex(p.Args[i])
	}
}
