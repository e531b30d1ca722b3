package syscalls

import "strconv"

// appendQuoted appends bytes as a C string, as strace does: what is not printable ASCII is an escape. So nothing that a
// program wrote reaches a terminal.
func appendQuoted(b, s []byte) []byte {
	return append(appendText(append(b, '"'), s, '"'), '"')
}

// appendText appends the bytes of a string; quote is escaped too.
func appendText(b, s []byte, quote byte) []byte {
	for i, c := range s {
		switch {
		case c == quote || c == '\\':
			b = append(b, '\\', c)
		case c >= ' ' && c < 0x7f:
			b = append(b, c)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\v':
			b = append(b, `\v`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c == '\r':
			b = append(b, `\r`...)
		default:
			b = append(b, '\\')
			if i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9' {
				b = append(b, '0'+c>>6, '0'+c>>3&7, '0'+c&7)
			} else {
				b = strconv.AppendUint(b, uint64(c), 8)
			}
		}
	}
	return b
}

// text appends a string that ends with a NUL, at most limit bytes of it; 0: all.
func (p *printer) text(address uint64, limit int) {
	s, nul := p.mem.at(address)
	for i, c := range s {
		if c == 0 {
			s, nul = s[:i], true
			break
		}
	}
	if len(s) == 0 && !nul {
		p.address(address)
		return
	}
	if limit > 0 && len(s) > limit {
		s, nul = s[:limit], false
	}
	p.b = appendQuoted(p.b, s)
	if !nul {
		p.str("...")
	}
}

// data appends n bytes.
func (p *printer) data(address uint64, n int) {
	if n == 0 {
		p.str(`""`)
		return
	}
	s, _ := p.mem.read(address, max(0, min(n, MaxText)))
	if len(s) == 0 {
		p.address(address)
		return
	}
	p.b = appendQuoted(p.b, s)
	if n > len(s) {
		p.str("...")
	}
}
