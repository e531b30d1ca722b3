package syscalls

import (
	"strconv"
	"strings"
	"sync"
)

// A constant is a value with a name.
type constant struct {
	name  string
	value uint64
}

var groups = [machines]func() map[string][]constant{
	sync.OnceValue(func() map[string][]constant { return parseGroups(AMD64) }),
	sync.OnceValue(func() map[string][]constant { return parseGroups(ARM64) }),
}

func parseGroups(m Machine) map[string][]constant {
	all := map[string][]constant{}
	for line := range strings.Lines(constantsText) {
		f := strings.Fields(line)
		list := make([]constant, 0, len(f)-1)
		for _, s := range f[1:] {
			name, values, _ := strings.Cut(s, "=")
			v, other, differ := strings.Cut(values, "/")
			if differ && m == ARM64 {
				v = other
			}
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				list = append(list, constant{name, uint64(n)})
			}
		}
		all[f[0]] = list
	}
	return all
}

// enum appends the name of a value, or the value in hex with what it is not: 0x7 /* SEEK_??? */.
func (m Machine) enum(b []byte, group string, v uint64) []byte {
	list := groups[m]()[group]
	for i := range list {
		if list[i].value == v || uint64(uint32(list[i].value)) == v {
			return append(b, list[i].name...)
		}
	}
	b = appendHex(b, v)
	return appendUnknown(b, list)
}

// appendUnknown appends a comment with what the names of a group have in common.
func appendUnknown(b []byte, list []constant) []byte {
	if len(list) == 0 {
		return b
	}
	p := list[0].name
	for i := range list {
		for !strings.HasPrefix(list[i].name, p) {
			p = p[:len(p)-1]
		}
	}
	p = p[:strings.LastIndexByte(p, '_')+1]
	if p == "" {
		p = list[0].name[:1]
	}
	b = append(b, " /* "...)
	b = append(b, p...)
	return append(b, "??? */"...)
}

// flags appends the names of bits that are set, the rest in hex, between bars. None: zero.
func (m Machine) flags(b []byte, group string, v uint64, zero string) []byte {
	list := groups[m]()[group]
	sep, rest := "", v
	for i := range list {
		c := &list[i]
		bits := c.value
		if bits>>32 == 0xffffffff {
			bits &= 0xffffffff
		}
		if bits != 0 && rest&bits == bits {
			b = append(append(b, sep...), c.name...)
			rest &^= bits
			sep = "|"
		}
	}
	switch {
	case rest != 0:
		b = appendHex(append(b, sep...), rest)
		if sep == "" {
			b = appendUnknown(b, list)
		}
	case sep == "":
		for i := range list {
			if list[i].value == 0 {
				return append(b, list[i].name...)
			}
		}
		b = append(b, zero...)
	}
	return b
}

func appendHex(b []byte, v uint64) []byte {
	if v == 0 {
		return append(b, '0')
	}
	return strconv.AppendUint(append(b, "0x"...), v, 16)
}
