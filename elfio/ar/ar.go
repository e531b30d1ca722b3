package ar

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// The common archive format (System V, ar.h): a magic string, then members of a header and contents, each at an even
// offset. A thin archive has headers only; its members are files of their own.
const (
	archiveMagic  = "!<arch>\n"
	thinMagic     = "!<thin>\n"
	memberHeader  = 60
	memberNameLen = 16
	memberSizeAt  = 48
	memberSizeLen = 10
)

// Archive is a parsed archive. It refers to the bytes given to Parse.
type Archive struct {
	Thin    bool
	Members []Member // without the symbol index and the table of long names

	raw   []byte
	index []index
}

// Member is a file in an archive.
type Member struct {
	Name   string
	Header uint64 // offset of its header
	Off    uint64 // offset of its contents; in a thin archive, of what follows the header
	Size   uint64 // size of its contents

	// In a thin archive, a member can be one of another archive, which Name then names: Nested, and Inner is the offset
	// of its header there.
	Nested bool
	Inner  uint64
}

// index is a symbol index: words of 4 or 8 bytes, some of which are offsets of member headers.
//
//	GNU   number of symbols, an offset each, then their names; big-endian
//	BSD   size of the pairs in bytes, a pair of name and offset each, size of the names, names; in its machine's order
type index struct {
	off, size uint64
	word      uint64
	order     binary.ByteOrder
	first     uint64 // where in it the first offset is
	stride    uint64 // and how far away the next
	n         uint64
}

// Is reports whether b begins with the magic of an archive.
func Is(b []byte) bool {
	return len(b) >= 8 && (string(b[:8]) == archiveMagic || string(b[:8]) == thinMagic)
}

// Parse reads the headers of an archive in the format of GNU or of BSD ar.
func Parse(b []byte) (*Archive, error) {
	if !Is(b) {
		return nil, elfio.FormatErrorf("archive", 0, "not an archive")
	}
	a := &Archive{raw: b, Thin: string(b[:8]) == thinMagic}
	var names []byte
	for at := uint64(8); at < uint64(len(b)); {
		h, ok := raw.Slice(b, at, memberHeader)
		if !ok || h[58] != '`' || h[59] != '\n' {
			return nil, elfio.FormatErrorf("archive", at, "no member header")
		}
		size, err := strconv.ParseUint(strings.TrimRight(string(h[memberSizeAt:memberSizeAt+memberSizeLen]), " "), 10, 64)
		if err != nil {
			return nil, elfio.FormatErrorf("archive member header", at, "size %q is no number",
				h[memberSizeAt:memberSizeAt+memberSizeLen])
		}
		name := strings.TrimRight(string(h[:memberNameLen]), " ")
		m := Member{Name: name, Header: at, Off: at + memberHeader, Size: size}
		special := name == "/" || name == "//" || name == "/SYM64/" || strings.HasPrefix(name, "__.SYMDEF")
		stored := size
		if a.Thin && !special {
			stored = 0
		}
		data, ok := raw.Slice(b, m.Off, stored)
		if !ok {
			return nil, elfio.FormatErrorf("archive member "+strconv.Quote(name), at,
				"%#x bytes end outside the file of %#x bytes", size, len(b))
		}
		at = m.Off + stored + stored&1
		switch {
		case name == "//":
			names = data
			continue
		case name == "/", name == "/SYM64/":
			x, ok := gnuIndex(m, data)
			if !ok {
				return nil, elfio.FormatErrorf("archive index", m.Off, "its entries do not fit into %#x bytes", size)
			}
			a.index = append(a.index, x)
			continue
		case strings.HasPrefix(name, "#1/"): // BSD: the name is in front of the contents
			n, err := strconv.ParseUint(name[3:], 10, 32)
			if err != nil || n > uint64(len(data)) {
				return nil, elfio.FormatErrorf("archive member header", m.Header, "name of %q bytes in a member of %#x", name[3:],
					size)
			}
			m.Name = string(raw.CString(data[:n]))
			m.Off, m.Size = m.Off+n, m.Size-n
			special = strings.HasPrefix(m.Name, "__.SYMDEF")
		case len(name) > 1 && name[0] == '/':
			if ok = m.long(names, name[1:]); !ok {
				return nil, elfio.FormatErrorf("archive member header", m.Header, "name at %q of a table of %#x bytes", name[1:],
					len(names))
			}
		default:
			m.Name = strings.TrimSuffix(name, "/")
		}
		if special {
			x, ok := bsdIndex(m, b[m.Off:m.Off+m.Size])
			if !ok {
				return nil, elfio.FormatErrorf("archive index", m.Off, "its entries do not fit into %#x bytes", m.Size)
			}
			a.index = append(a.index, x)
			continue
		}
		a.Members = append(a.Members, m)
	}
	return a, nil
}

// long sets the name that at, a decimal number, stands for in the table of long names. With a second number behind a
// colon it is that of an archive, and the second one says where in it the member is.
func (m *Member) long(names []byte, at string) bool {
	digits, inner, nested := strings.Cut(at, ":")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n >= uint64(len(names)) {
		return false
	}
	if nested {
		if m.Inner, err = strconv.ParseUint(inner, 10, 64); err != nil {
			return false
		}
		m.Nested = true
	}
	long, _, _ := bytes.Cut(names[n:], []byte{'\n'})
	m.Name = strings.TrimSuffix(string(long), "/")
	return true
}

// gnuIndex reads an index of GNU: words of 4 bytes, or of 8 where it is named so.
func gnuIndex(m Member, data []byte) (index, bool) {
	x := index{off: m.Off, size: m.Size, word: 4, order: binary.BigEndian}
	if m.Name == "/SYM64/" {
		x.word = 8
	}
	x.first, x.stride = x.word, x.word
	if x.size == 0 {
		return x, true
	}
	if x.size < x.word || x.get(data) > x.size/x.word-1 {
		return x, false
	}
	x.n = x.get(data)
	return x, true
}

// bsdIndex finds out the byte order of an index of BSD: that in which it makes sense.
func bsdIndex(m Member, data []byte) (index, bool) {
	x := index{off: m.Off, size: m.Size, word: 4}
	if strings.HasPrefix(m.Name, "__.SYMDEF_64") {
		x.word = 8
	}
	x.first, x.stride = 2*x.word, 2*x.word
	if x.size < 2*x.word {
		return x, false
	}
	for _, x.order = range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if n := x.get(data); n%x.stride == 0 && n <= x.size-2*x.word {
			x.n = n / x.stride
			return x, true
		}
	}
	return x, false
}

func (x index) get(d []byte) uint64 {
	if x.word == 8 {
		return x.order.Uint64(d)
	}
	return uint64(x.order.Uint32(d))
}

// Data returns the contents of a member as a sub-slice of the archive, or nil in a thin archive.
func (a *Archive) Data(m Member) []byte {
	if a.Thin {
		return nil
	}
	return a.raw[m.Off : m.Off+m.Size : m.Off+m.Size]
}

// Contents is what a member is replaced with.
type Contents interface {
	Size() int64
	io.WriterTo
}

// Inner is what a member is replaced with that is one of another archive: its header there may have moved.
type Inner interface {
	Contents
	Inner() uint64
}

// Output is an archive with some members replaced.
type Output struct {
	a       *Archive
	edits   []elfio.RawEdit
	replace map[int]Contents
}

// Replace returns the archive with new contents for members, by index. The offsets in the symbol index are updated
// but the symbols are not, so the replacements must define the same ones. In a thin archive only the sizes in the
// headers change.
func (a *Archive) Replace(members map[int]Contents) (*Output, error) {
	o := &Output{a: a, replace: members}
	moved := make(map[uint64]uint64, len(a.Members))
	shift := int64(0)
	for i, m := range a.Members {
		moved[m.Header] = m.Header + uint64(shift)
		c, ok := members[i]
		if !ok {
			continue
		}
		front := int64(m.Off - m.Header - memberHeader) // a name of BSD
		size := fmt.Sprintf("%-10d", front+c.Size())
		if len(size) != memberSizeLen {
			return nil, elfio.FormatErrorf("archive member "+strconv.Quote(m.Name), m.Header,
				"would be too large with %d bytes", c.Size())
		}
		if in, ok := c.(Inner); ok && m.Nested && in.Inner() != m.Inner {
			name, err := a.nestedName(m, in.Inner())
			if err != nil {
				return nil, err
			}
			o.edits = append(o.edits, elfio.RawEdit{Off: m.Header, New: name})
		}
		o.edits = append(o.edits, elfio.RawEdit{Off: m.Header + memberSizeAt, New: []byte(size)})
		if !a.Thin {
			shift += even(front+c.Size()) - even(front+int64(m.Size))
		}
	}
	for _, x := range a.index {
		data := append([]byte(nil), a.raw[x.off:x.off+x.size]...)
		for k := range x.n {
			d := data[x.first+k*x.stride:]
			to, ok := moved[x.get(d)]
			switch {
			case !ok:
				return nil, elfio.FormatErrorf("archive index", x.off+x.first+k*x.stride, "entry %d is not the offset of a member",
					k)
			case x.word == 8:
				x.order.PutUint64(d, to)
			case to>>32 != 0:
				return nil, elfio.FormatErrorf("archive index", x.off, "the archive would grow beyond what its index can address")
			default:
				x.order.PutUint32(d, uint32(to))
			}
		}
		o.edits = append(o.edits, elfio.RawEdit{Off: x.off, New: data})
	}
	slices.SortFunc(o.edits, func(a, b elfio.RawEdit) int { return cmp.Compare(a.Off, b.Off) })
	return o, nil
}

// nestedName is the name in the header of a nested member whose header in the other archive is at offset inner.
func (a *Archive) nestedName(m Member, inner uint64) ([]byte, error) {
	old := string(a.raw[m.Header : m.Header+memberNameLen])
	name := fmt.Sprintf("%-*s", memberNameLen, fmt.Sprintf("%s:%d", old[:strings.IndexByte(old, ':')], inner))
	if len(name) != memberNameLen {
		return nil, elfio.FormatErrorf("archive member "+strconv.Quote(m.Name), m.Header,
			"its offset %d in the other archive has too many digits", inner)
	}
	return []byte(name), nil
}

func even(n int64) int64 { return n + n&1 }

// WriteTo writes the archive.
func (o *Output) WriteTo(w io.Writer) (n int64, err error) {
	a := o.a
	var head []byte
	edits := o.edits
	put := func(b []byte) {
		if err == nil && len(b) > 0 {
			var k int
			k, err = w.Write(b)
			n += int64(k)
		}
	}
	edited := func(from, to uint64) []byte {
		head = append(head[:0], a.raw[from:to]...)
		for len(edits) > 0 && edits[0].Off < to { // none crosses a piece
			copy(head[edits[0].Off-from:], edits[0].New)
			edits = edits[1:]
		}
		return head
	}
	at := uint64(0)
	// Edits are headers of replaced members and the indices before them; everything else is copied as it is.
	for i, m := range a.Members {
		c, ok := o.replace[i]
		if !ok {
			continue
		}
		if a.Thin {
			put(edited(at, m.Off))
			at = m.Off
			continue
		}
		put(edited(at, m.Off))
		if err != nil {
			return n, err
		}
		var k int64
		k, err = c.WriteTo(w)
		n += k
		if front := int64(m.Off - m.Header - memberHeader); (front+c.Size())&1 != 0 {
			put([]byte{'\n'})
		}
		at = min(m.Off+m.Size+(m.Off+m.Size)&1, uint64(len(a.raw)))
	}
	put(edited(at, uint64(len(a.raw))))
	return n, err
}
