package syscalls

import (
	"bytes"
	"fmt"
	"net/netip"
)

// Sockets.

const (
	afUnix    = 1
	afInet    = 2
	afInet6   = 10
	afNetlink = 16
	afPacket  = 17
)

// sockaddrArg appends the address that an argument points to. Of what the kernel fills in there is no more than the
// program had room for.
func (p *printer) sockaddrArg(s *spec, v uint64) {
	n := p.elements(s)
	if s.sign == '>' {
		if room, ok := p.In.read(p.Args[s.count.arg], 4); ok {
			n = min(n, int(int32(le32(room))))
		}
	}
	p.sockaddr(v, n)
}

func (p *printer) sockaddr(v uint64, n int) {
	b, _ := p.mem.read(v, max(0, min(n, 128)))
	if len(b) < 2 {
		p.address(v)
		return
	}
	family := le16(b)
	p.str("{")
	p.field("sa_family")
	p.enum("af", uint64(family))
	switch {
	case family == afUnix && len(b) > 2:
		p.unixAddress(b[2:])
	case family == afInet && len(b) >= 8:
		p.port("sin_port", b)
		p.field("sin_addr")
		p.str(`inet_addr("`)
		p.b = netip.AddrFrom4([4]byte(b[4:8])).AppendTo(p.b)
		p.str(`")`)
	case family == afInet6 && len(b) >= 28:
		p.port("sin6_port", b)
		p.field("sin6_flowinfo")
		p.str("htonl(")
		p.uint(uint64(b[4])<<24 | uint64(b[5])<<16 | uint64(b[6])<<8 | uint64(b[7]))
		p.str(`), inet_pton(AF_INET6, "`)
		p.inet6([16]byte(b[8:24]))
		p.str(`", &sin6_addr)`)
		p.uintField("sin6_scope_id", uint64(le32(b[24:])))
	case family == afNetlink && len(b) >= 12:
		p.intField("nl_pid", int64(int32(le32(b[4:]))))
		p.field("nl_groups")
		if groups := le32(b[8:]); groups == 0 {
			p.str("00000000")
		} else {
			p.b = fmt.Appendf(p.b, "0x%06x", groups)
		}
	case len(b) > 2:
		p.field("sa_data")
		p.b = appendQuoted(p.b, b[2:])
	}
	p.str("}")
}

// inet6 appends an address; those that hold one of version 4 show it.
func (p *printer) inet6(a [16]byte) { p.b = netip.AddrFrom16(a).AppendTo(p.b) }

// unixAddress appends a path, or an abstract name with an @ in front.
func (p *printer) unixAddress(b []byte) {
	p.field("sun_path")
	if b[0] == 0 && len(b) > 1 {
		p.str("@")
		p.b = appendQuoted(p.b, b[1:])
		return
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	p.b = appendQuoted(p.b, b)
}

func (p *printer) port(name string, b []byte) {
	p.field(name)
	p.str("htons(")
	p.uint(uint64(b[2])<<8 | uint64(b[3]))
	p.str(")")
}

// sockType appends a socket's type and its flags.
func sockType(p *printer, i int) bool {
	p.sep(i)
	v := uint64(uint32(p.Args[i]))
	p.enum("sock_type", v&0xf)
	if v&^0xf != 0 {
		p.str("|")
		p.flags("sock_flags", v&^0xf)
	}
	return true
}

// sockProto appends a protocol, which means what the family says.
func sockProto(p *printer, i int) bool {
	p.sep(i)
	v := uint64(uint32(p.Args[i]))
	switch p.Args[0] {
	case afInet, afInet6:
		p.enum("ipproto", v)
	case afNetlink:
		p.enum("netlink", v)
	default:
		p.uint(v)
	}
	return true
}

// sockoptName appends the name of an option of a level.
func sockoptName(p *printer, i int) bool {
	p.sep(i)
	v := uint64(uint32(p.Args[i]))
	const tcp, ipv6 = 6, 41
	switch p.Args[1] {
	case 0:
		p.enum("ip", v)
	case 1:
		p.enum("so", v)
	case tcp:
		p.enum("tcp", v)
	case ipv6:
		p.enum("ipv6", v)
	default:
		p.hex(v)
	}
	return true
}

// sockopt appends an option's value: a number, credentials, or bytes.
func (p *printer) sockopt(s *spec, v uint64) {
	n := p.elements(s)
	b, _ := p.mem.read(v, max(0, min(n, 64)))
	level, name := p.Args[1], p.Args[2]
	const linger, peercred, soError = 13, 17, 4
	switch {
	case len(b) == 0:
		p.address(v)
	case level == 1 && name == linger && len(b) >= 8:
		p.str("{l_onoff=")
		p.int(int64(int32(le32(b))))
		p.str(", l_linger=")
		p.int(int64(int32(le32(b[4:]))))
		p.str("}")
	case level == 1 && name == peercred && len(b) >= 12:
		p.str("{pid=")
		p.int(int64(int32(le32(b))))
		p.task(int(int32(le32(b))))
		p.str(", uid=")
		p.uid(uint64(le32(b[4:])))
		p.str(", gid=")
		p.uid(uint64(le32(b[8:])))
		p.str("}")
	case level == 1 && name == soError && len(b) >= 4 && s.sign == '>':
		p.bracketed(func() {
			if e := le32(b); e == 0 || ErrnoName(int(e)) == "" {
				p.uint(uint64(e))
			} else {
				p.str(ErrnoName(int(e)))
			}
		})
	case len(b) == 4:
		p.bracketed(func() { p.int(int64(int32(le32(b)))) })
	default:
		p.data(v, n)
	}
}

// msghdr appends a message; of one that was received, as much as the result says.
func (p *printer) msghdr(v uint64, result int, received bool) {
	b, ok := p.mem.read(v, 56)
	if !ok {
		p.address(v)
		return
	}
	left := -1
	if received {
		left = result
	}
	name, nameLen := le64(b), int(int32(le32(b[8:])))
	vec, vecs := le64(b[16:]), le64(b[24:])
	control, controlLen := le64(b[32:]), le64(b[40:])
	p.str("{")
	p.field("msg_name")
	if name == 0 || nameLen <= 0 {
		p.address(name)
	} else {
		p.sockaddr(name, nameLen)
	}
	p.field("msg_namelen")
	p.int(int64(nameLen))
	p.field("msg_iov")
	if vec == 0 {
		p.str("NULL")
	} else {
		p.vectors(vec, int(min(vecs, 1<<31)), left, true)
	}
	p.uintField("msg_iovlen", vecs)
	if controlLen > 0 {
		p.field("msg_control")
		p.control(control, controlLen)
	}
	p.uintField("msg_controllen", controlLen)
	p.field("msg_flags")
	p.flagsArg("msg", uint64(le32(b[48:])))
	p.str("}")
}

// control appends the ancillary messages: descriptors, credentials.
func (p *printer) control(v, size uint64) {
	b, _ := p.mem.read(v, int(min(size, 512)))
	if len(b) < 16 {
		p.address(v)
		return
	}
	p.str("[")
	for i := 0; len(b) >= 16; i++ {
		n, level, typ := le64(b), le32(b[8:]), le32(b[12:])
		p.sep(i)
		p.str("{")
		p.uintField("cmsg_len", n)
		p.field("cmsg_level")
		p.enum("sol", uint64(level))
		p.field("cmsg_type")
		if level == 1 {
			p.enum("scm", uint64(typ))
		} else {
			p.hex(uint64(typ))
		}
		if n < 16 || n > uint64(len(b)) {
			p.str(", ...}")
			break
		}
		if data := b[16:n]; len(data) > 0 {
			p.field("cmsg_data")
			p.controlData(level, typ, data)
		}
		p.str("}")
		b = b[min(uint64(len(b)), (n+7)&^7):]
	}
	p.str("]")
}

func (p *printer) controlData(level, typ uint32, data []byte) {
	switch {
	case level == 1 && typ == 1: // descriptors
		p.str("[")
		for i := 0; len(data) >= 4; i++ {
			p.sep(i)
			p.int(int64(int32(le32(data))))
			data = data[4:]
		}
		p.str("]")
	case level == 1 && typ == 2 && len(data) >= 12: // credentials
		p.str("{")
		p.intField("pid", int64(int32(le32(data))))
		p.task(int(int32(le32(data))))
		p.field("uid")
		p.uid(uint64(le32(data[4:])))
		p.field("gid")
		p.uid(uint64(le32(data[8:])))
		p.str("}")
	default:
		p.b = appendQuoted(p.b, data)
	}
}

// mmsghdrs appends several messages, each with how many bytes were sent or received.
func (p *printer) mmsghdrs(s *spec, v uint64) {
	n := p.elements(s)
	if p.Ended && !p.failed() {
		n = min(n, int(int64(p.Result)))
	}
	if _, ok := p.mem.read(v, 64); !ok && n > 0 {
		p.address(v)
		return
	}
	p.str("[")
	for i := range max(0, n) {
		p.sep(i)
		at := v + uint64(64*i)
		b, ok := p.mem.read(at, 64)
		if !ok || i == MaxElements {
			p.str("...")
			break
		}
		size := le32(b[56:])
		if after, ok := p.Out.read(at, 64); ok {
			size = le32(after[56:])
		}
		p.str("{msg_hdr=")
		p.msghdr(at, int(size), s.sign == '>')
		if p.Ended && !p.failed() {
			p.str(", msg_len=")
			p.uint(uint64(size))
		}
		p.str("}")
	}
	p.str("]")
}
