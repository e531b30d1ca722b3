package ar_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio/ar"
	"github.com/fentry-dev/fentry/internal/cost"
)

type blob []byte

func (b blob) Size() int64 { return int64(len(b)) }
func (b blob) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

func member(name, data string) string {
	h := make([]byte, 60)
	for i := range h {
		h[i] = ' '
	}
	copy(h, name)
	copy(h[16:], "0")
	copy(h[48:], itoa(len(data)))
	copy(h[58:], "`\n")
	if len(data)%2 != 0 {
		data += "\n"
	}
	return string(h) + data
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// An index of two symbols, a table of long names, a member of odd size, one with a long name.
var archive = "!<arch>\n" + member("/", "\x00\x00\x00\x02\x00\x00\x00\x9c\x00\x00\x00\xe0f\x00g\x00") +
	member("//", "a-name-of-more-than-fifteen.o/\n") + member("a.o/", "one") + member("/0", "four")

func TestReplaceInArchive(t *testing.T) {
	b := []byte(archive)
	at := func(name string) uint32 { return uint32(bytes.Index(b, []byte(name))) }
	put := func(off int, v uint32) { copy(b[off:], []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}) }
	put(8+60+4, at("a.o/  "))
	put(8+60+8, at("/0  "))
	a, err := ar.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Members) != 2 || a.Members[0].Name != "a.o" || a.Members[1].Name != "a-name-of-more-than-fifteen.o" ||
		string(a.Data(a.Members[1])) != "four" {
		t.Fatalf("members %+v", a.Members)
	}
	out, err := a.Replace(map[int]ar.Contents{0: blob("a longer one")})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if _, err := out.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	grown := got.Bytes()
	a2, err := ar.Parse(grown)
	if err != nil {
		t.Fatal(err)
	}
	if string(a2.Data(a2.Members[0])) != "a longer one" || string(a2.Data(a2.Members[1])) != "four" {
		t.Errorf("contents %q", grown)
	}
	word := func(off int) uint64 {
		return uint64(grown[off])<<24 | uint64(grown[off+1])<<16 | uint64(grown[off+2])<<8 | uint64(grown[off+3])
	}
	if word(8+60+4) != a2.Members[0].Header || word(8+60+8) != a2.Members[1].Header {
		t.Errorf("index %#x %#x, members at %#x %#x", word(72), word(76), a2.Members[0].Header, a2.Members[1].Header)
	}
	back, err := a2.Replace(map[int]ar.Contents{0: blob("one")})
	if err != nil {
		t.Fatal(err)
	}
	got.Reset()
	if _, err := back.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), b) {
		t.Errorf("not the original again (%v)", err)
	}
}

// bsdArchive has an index as BSD writes it, in one of the byte orders: two symbols, and members with long names.
func bsdArchive(order binary.ByteOrder) []byte {
	pad := func(name string) string { return name + strings.Repeat("\x00", 20-len(name)) }
	b := []byte("!<arch>\n" + member("#1/20", pad("__.SYMDEF SORTED")+strings.Repeat("\x00", 4+16+4)+"f\x00g\x00") +
		member("#1/20", pad("first.o")+"one") + member("b.o", "four"))
	at := 8 + 60 + 20
	order.PutUint32(b[at:], 16)
	order.PutUint32(b[at+4+4:], uint32(bytes.Index(b, []byte("first.o"))-60))
	order.PutUint32(b[at+4+8:], 2)
	order.PutUint32(b[at+4+12:], uint32(bytes.Index(b, []byte("b.o "))))
	order.PutUint32(b[at+4+16:], 4)
	return b
}

func TestReplaceInBSDArchive(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		b := bsdArchive(order)
		a, err := ar.Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Members) != 2 || a.Members[0].Name != "first.o" || string(a.Data(a.Members[0])) != "one" ||
			a.Members[1].Name != "b.o" {
			t.Fatalf("members %+v", a.Members)
		}
		out, err := a.Replace(map[int]ar.Contents{0: blob("a longer one")})
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if _, err := out.WriteTo(&got); err != nil {
			t.Fatal(err)
		}
		grown := bytes.Clone(got.Bytes())
		a2, err := ar.Parse(grown)
		if err != nil || string(a2.Data(a2.Members[0])) != "a longer one" || string(a2.Data(a2.Members[1])) != "four" {
			t.Fatalf("%v: contents %q", err, grown)
		}
		at := 8 + 60 + 20
		if f, g := order.Uint32(grown[at+8:]), order.Uint32(grown[at+16:]); uint64(f) != a2.Members[0].Header ||
			uint64(g) != a2.Members[1].Header {
			t.Errorf("%v: index %#x %#x, members at %#x %#x", order, f, g, a2.Members[0].Header, a2.Members[1].Header)
		}
		back, err := a2.Replace(map[int]ar.Contents{0: blob("one")})
		if err != nil {
			t.Fatal(err)
		}
		got.Reset()
		if _, err := back.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), b) {
			t.Errorf("%v: not the original again (%v)", order, err)
		}
	}
}

// FuzzArchive: members are where their headers say, and what is put in their places is there afterwards.
func FuzzArchive(f *testing.F) {
	f.Add([]byte(archive))
	f.Add(bsdArchive(binary.LittleEndian))
	f.Add(bsdArchive(binary.BigEndian))
	f.Add([]byte("!<thin>\n" + member("//", "x.o/\n")))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a *ar.Archive
		var err error
		cost.Check(t, len(b), 16, func() { a, err = ar.Parse(b) })
		if err != nil {
			return
		}
		end := uint64(8)
		same, other := map[int]ar.Contents{}, map[int]ar.Contents{}
		for i, m := range a.Members {
			if m.Header < end || m.Off < m.Header+60 || !a.Thin && m.Off+m.Size > uint64(len(b)) {
				t.Errorf("member %+v behind %#x, in %d bytes", m, end, len(b))
			}
			end = m.Off
			if !a.Thin {
				end += m.Size
			}
			same[i] = blob(a.Data(m))
			if i%3 > 0 {
				other[i] = blob(strings.Repeat("new ", i%7) + "one")
			}
			if a.Thin {
				same[i] = size(m.Size)
			}
		}
		once := replace(t, a, same)
		if once == nil {
			return
		}
		again, err := ar.Parse(once)
		if err != nil {
			t.Fatal(err)
		}
		if twice := replace(t, again, same); !bytes.Equal(twice, once) {
			t.Errorf("%q, and once more %q", once, twice)
		}
		compareMembers(t, a, again, same)
		if changed := replace(t, a, other); changed != nil {
			if again, err = ar.Parse(changed); err != nil {
				t.Fatal(err)
			}
			compareMembers(t, a, again, other)
		}
	})
}

// size is the contents of a member of a thin archive.
type size uint64

func (s size) Size() int64                      { return int64(s) }
func (s size) WriteTo(io.Writer) (int64, error) { return 0, nil }

// replace returns the archive with other members, nil if that cannot be.
func replace(t *testing.T, a *ar.Archive, members map[int]ar.Contents) []byte {
	t.Helper()
	out, err := a.Replace(members)
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	if n, err := out.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes, WriteTo says %d, %v", b.Len(), n, err)
	}
	return b.Bytes()
}

// compareMembers compares an archive with the one it was made of by replacing members.
func compareMembers(t *testing.T, from, to *ar.Archive, replaced map[int]ar.Contents) {
	t.Helper()
	if len(from.Members) != len(to.Members) {
		t.Fatalf("%d members from %d", len(to.Members), len(from.Members))
	}
	for i, m := range to.Members {
		was := from.Members[i]
		want := from.Data(was)
		if c, ok := replaced[i].(blob); ok && !from.Thin {
			want = c
		}
		n := was.Size
		if c, ok := replaced[i]; ok {
			n = uint64(c.Size())
		}
		if m.Name != was.Name || m.Size != n || !bytes.Equal(to.Data(m), want) {
			t.Errorf("member %+v with %q, want %+v with %q", m, to.Data(m), was, want)
		}
	}
}
