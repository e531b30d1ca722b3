package ehframe

import (
	"slices"
	"testing"
)

// Rows in front of the one in which the return address is saved get a mark, if their entry has room for what takes it off.
func TestMark(t *testing.T) {
	cie := &CIE{CodeAlign: 4, DataAlign: -8, RetReg: 30, Instructions: []byte{0x0c, 31, 0}}
	for _, tt := range []struct {
		text, code string
		lead       uint64
		want       string // "": there is no mark
	}{
		{"gcc's", "\x41\x0e\x20\x41\x9d\x02\x9e\x01\x42\x93\x00\x45\xde\xdd\x0e\x00", 8,
			"\x41\x0e\x21\x41\x0e\x20\x9d\x02\x42\x93\x00\x45\xde\xdd\x0e\x00"},
		{"a large frame", "\x41\x0e\xf0\x01\x41\x9d\x1e\x9e\x1d", 8, "\x41\x0e\xf1\x01\x41\x13\x62\x9d\x1e"},
		{"a larger one", "\x41\x0e\x90\x04\x41\x9d\x1e\x9e\x1d", 8, ""},
		{"a larger one, and room", "\x41\x0e\x90\x04\x41\x9d\x1e\x9e\x1d\x00", 8, "\x41\x0e\x91\x04\x41\x0e\x90\x04\x9d\x1e"},
		{"room instead", "\x41\x0e\x20\x41\x05\x1e\x01\x00\x00", 8, "\x41\x0e\x21\x41\x0e\x20\x05\x1e\x01"},
		{"no room", "\x41\x0e\x20\x41\x05\x1e\x01\x00", 8, ""},
		{"two steps", "\x41\x0e\x20\x41\x0e\x40\x02\x02\x9d\x02\x9e\x01\x00", 16, "\x41\x0e\x21\x41\x0e\x41\x02\x02\x0e\x40\x9d\x02\x00"},
		{"clang's", "\x41\x0e\x20\x42\x0c\x1d\x10\x9e\x01\x9d\x02", 12, "\x41\x0e\x21\x42\x0e\x20\x0c\x1d\x10\x9d\x02"},
		{"it is saved again later", "\x41\x0e\x20\x41\x9e\x01\x44\xde\x0e\x00\x41\x0e\x20\x9e\x01", 8,
			"\x41\x0e\x21\x41\x0e\x20\x44\xde\x0e\x00\x41\x0e\x20\x9e\x01"},
		{"an odd distance", "\x41\x0e\x21\x41\x9d\x02\x9e\x01", 8, ""},
		{"another register is saved", "\x41\x0e\x20\x93\x02\x41\x9d\x02\x9e\x01", 8, ""},
		{"relative to another register", "\x41\x0c\x1d\x20\x41\x9d\x02\x9e\x01\x00\x00", 8, ""},
		{"a state is kept", "\x41\x0e\x20\x0a\x41\x9d\x02\x9e\x01\x00\x00", 8, ""},
		{"a frame at the entry", "\x0e\x10\x41\x0e\x20\x41\x9d\x02\x9e\x01", 8, ""},
		{"no frame", "\x41\x41\x9d\x02\x9e\x01\x00\x00", 8, ""},
		{"no row begins there", "\x41\x0e\x20\x42\x9d\x02\x9e\x01", 8, ""},
		{"no row", "\x41\x0e\x20\x00\x00\x00", 8, ""},
		{"unknown", "\x41\x0e\x20\x41\x9e\x01\x3f", 8, ""},
	} {
		d := &FDE{CIE: cie, Size: 64, Instructions: []byte(tt.code)}
		got, ok := d.mark(tt.lead)
		if ok != (tt.want != "") || string(got) != tt.want {
			t.Errorf("%s: % x, %v; want % x", tt.text, got, ok, tt.want)
		}
		if !ok {
			continue
		}
		was, err := d.AppendRows(nil)
		if err != nil {
			t.Fatal(err)
		}
		now, err := (&FDE{CIE: cie, Size: 64, Instructions: got}).AppendRows(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range was {
			if was[i].At > 0 && was[i].At < tt.lead {
				was[i].Off++
			}
			was[i].Moved, was[i].Saved, was[i].Ret = false, false, 0
			now[i].Moved, now[i].Saved, now[i].Ret = false, false, 0
		}
		if !slices.Equal(now, was) {
			t.Errorf("%s: rows %+v, want %+v", tt.text, now, was)
		}
	}
}

// withMarks is byRows with marks where they can be.
type withMarks struct{ byRows }

func (withMarks) Revise(d *FDE, rows []Row) (Revision, bool) {
	for i := range rows {
		if rows[i].Saved {
			return Revision{Key: 1, Lead: rows[i].At, Mark: true}, true
		}
	}
	return Revision{Key: 1}, true
}

// Entries with a mark stay where they are, begin where they began, and are as long; in copies they are in one part.
func TestReviseMarks(t *testing.T) {
	data := []byte{16, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 'R', 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0}
	for range 6 {
		data = append(data, 24, 0, 0, 0, byte(len(data))+4, 0, 0, 0, 0, 1, 0, 0, 16, 0, 0, 0, 0)
		data = append(data, 0x41, 0x0e, 0x20, 0x41, 0x9d, 4, 0x9e, 3, 0, 0, 0)
	}
	data = append(data, 0, 0, 0, 0)
	table, err := Parse(fileOf(t, true, false, nil), data, 0x1000)
	if err != nil || table.Len() != 6 {
		t.Fatalf("%v: %d entries", err, table.Len())
	}
	v := NewVariants(withMarks{})
	x := table.Revise(v, func(uint64) bool { return false })
	area := table.area
	area.data = extended(t, table, x)
	after, err := parse(area)
	if err != nil {
		t.Fatal(err)
	}
	const want = "\x41\x0e\x21\x41\x0e\x20\x9d\x04\x00\x00\x00"
	stay := 0
	for i := range table.Len() {
		d := table.At(i)
		parts := v.Split(&d)
		if len(parts) != 1 || parts[0].PC != d.PC || string(parts[0].Instructions) != want {
			t.Errorf("%v: in copies %+v", d, parts)
		}
		if !x.Stays(i) {
			continue
		}
		stay++
		for b := range after.All() {
			if b.Addr == d.Addr && (b.PC != d.PC || b.Size != d.Size || string(b.Instructions) != want || x.Entry(&d, i) != Entry{d.PC, d.Addr}) {
				t.Errorf("%v has become %+v", d, b)
			}
		}
	}
	if stay == 0 || len(x.Leads) != 0 {
		t.Errorf("%d entries stay, %d leads", stay, len(x.Leads))
	}
}
