package syscalls

// Waiting for descriptors: poll, select, epoll.

func (p *printer) pollfd(b []byte) {
	p.str("{")
	p.intField("fd", int64(int32(le32(b))))
	if int32(le32(b)) >= 0 {
		p.flagsField("events", "poll", uint64(le16(b[4:])))
	}
	p.str("}")
}

// polled appends what poll has found.
func (p *printer) polled() {
	if p.Result == 0 {
		p.str(" (Timeout)")
		return
	}
	n := int(min(p.Args[1], MaxElements))
	sep := " (["
	for i := range n {
		b, ok := p.Out.read(p.Args[0]+uint64(8*i), 8)
		if !ok {
			break
		}
		if revents := le16(b[6:]); revents != 0 {
			p.str(sep)
			p.str("{")
			p.intField("fd", int64(int32(le32(b))))
			p.flagsField("revents", "poll", uint64(revents))
			p.str("}")
			sep = ", "
		}
	}
	if sep != ", " {
		return
	}
	p.str("]")
	if p.call.Name == "ppoll" {
		p.left("left ", 2)
	}
	p.str(")")
}

// left appends how much of a timeout is left.
func (p *printer) left(label string, arg int) {
	b, ok := p.Out.read(p.Args[arg], 16)
	if !ok || p.Args[arg] == 0 {
		return
	}
	p.str(", ")
	p.str(label)
	if p.call.Name == "select" {
		p.timeval(b)
	} else {
		p.timespec(b)
	}
}

// fdset appends the descriptors that are in a set, as it was given.
func (p *printer) fdset(s *spec, v uint64) {
	b, ok := p.In.read(v, setBytes(p.Args[0]))
	if !ok {
		p.address(v)
		return
	}
	p.descriptors(b, p.Args[0])
}

// setBytes is how many bytes a set of n descriptors has: whole words.
func setBytes(n uint64) int { return int((min(n, 1024) + 63) / 64 * 8) }

func (p *printer) descriptors(b []byte, n uint64) {
	p.str("[")
	sep := ""
	for fd := range int(min(n, 1024)) {
		if b[fd/8]>>(fd%8)&1 != 0 {
			p.str(sep)
			p.int(int64(fd))
			sep = " "
		}
	}
	p.str("]")
}

// selected appends the descriptors that select has found.
func (p *printer) selected() {
	if p.Result == 0 {
		p.str(" (Timeout)")
		return
	}
	sep := " ("
	for i, name := range []string{"in ", "out ", "except "} {
		v := p.Args[1+i]
		b, ok := p.Out.read(v, setBytes(p.Args[0]))
		if v == 0 || !ok || !anySet(b) {
			continue
		}
		p.str(sep)
		p.str(name)
		p.descriptors(b, p.Args[0])
		sep = ", "
	}
	if sep == ", " {
		p.left("left ", 4)
		p.str(")")
	}
}

func anySet(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return true
		}
	}
	return false
}

// epollEvent appends an event; on amd64 its data follow without a gap.
func (p *printer) epollEvent(b []byte) {
	data := le64(b[p.epollData():])
	p.str("{")
	p.flagsField("events", "epoll", uint64(le32(b)))
	p.field("data")
	p.str("{")
	p.uintField("u32", uint64(uint32(data)))
	p.uintField("u64", data)
	p.str("}}")
}

func (p *printer) epollData() int {
	if p.Machine == AMD64 {
		return 4
	}
	return 8
}
