package sitetable

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/cost"
)

// table is the contents of .fentry.sites.
func table(base uint64, rows ...Row) []byte {
	width := 0
	for _, r := range rows {
		width = max(width, r.Width())
	}
	b := make([]byte, SitesHeader+(SiteSize+width)*len(rows))
	PutHeader(b, len(rows), base, width)
	for i, r := range rows {
		if err := r.PutSite(b[SitesHeader+SiteSize*i:], base); err != nil {
			panic(err)
		}
		if width > 0 {
			r.PutDistance(b[SitesHeader+SiteSize*len(rows)+width*i:][:width])
		}
	}
	return b
}

// Rows reach 4 GiB.
func TestReach(t *testing.T) {
	const base = 1 << 40
	var b [SiteSize]byte
	for _, r := range []Row{{base - 1, base}, {base, base - 1}, {base + 1<<32, base}, {base, base + 1<<32}} {
		if r.PutSite(b[:], base) == nil {
			t.Errorf("%#x is written", r)
		}
	}
	last := Row{base, base + 1<<32 - 1}
	rows, err := ParseRows(table(base, last))
	if err != nil || rows.At(0) != last {
		t.Errorf("%#x, want %#x: %v", rows.At(0), last, err)
	}
}

// The bytes are a format: files that were patched earlier have them.
func TestBytes(t *testing.T) {
	got := table(0x400000, Row{0x401000, 0x401004}, Row{0x1003fffff, 0x400002})
	head := "FSITES3\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x40\x00\x00\x00\x00\x00"
	want := head + "\x04\x00\x00\x00\x00\x00\x00\x00" + "\x04\x10\x00\x00" + "\x02\x00\x00\x00" + "\x04\x00\x00\x00" + "\x03\x00\x00\x00"
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	got = table(0x400000, Row{0x401000, 0x401004}, Row{0x402000, 0x402000})
	want = head + "\x01\x00\x00\x00\x00\x00\x00\x00" + "\x04\x10\x00\x00" + "\x00\x20\x00\x00" + "\x04\x00"
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	got = table(0x400000, Row{0x401000, 0x401000}, Row{0x402000, 0x402000})
	want = head + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x10\x00\x00" + "\x00\x20\x00\x00"
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	in := Info{Image: 0x1122334455667788, Tracer: 2, Sites: 7, BuildID: []byte("id")}
	want = "FINFO1\x00\x00" + "\x88\x77\x66\x55\x44\x33\x22\x11" + "\x02\x00\x00\x00" + "\x07\x00\x00\x00" + "\x02\x00\x00\x00" + "id"
	if d := cmp.Diff(want, string(in.Append(nil))); d != "" {
		t.Error(d)
	}
}

func TestRefused(t *testing.T) {
	good := table(0, Row{1, 2}, Row{3, 4})
	for _, c := range []struct {
		b    []byte
		want string
	}{
		{nil, "not a table"},
		{good[:31], "not a table"},
		{bytes.Replace(good, []byte("FSITES3"), []byte("FSITES2"), 1), "not a table"},
		{good[:len(good)-1], "41 bytes for 2 sites"},
		{append(append(bytes.Clone(good[:24]), 2), good[25:]...), "distances of 2 bytes"},
		{append(append([]byte(sitesMagic), bytes.Repeat([]byte{0xff}, 8)...), good[16:]...), "for 18446744073709551615 sites"},
	} {
		if _, err := ParseRows(c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.b, err, c.want)
		}
	}
	info := (&Info{BuildID: []byte("build-id")}).Append(nil)
	for n := range info {
		if _, err := ParseInfo(info[:n]); err == nil {
			t.Errorf("%d of %d bytes are read", n, len(info))
		}
	}
}

// TestNotes: what is captured of calls is read as it was written; what is cut, or of ids that there are not, is an error.
func TestNotes(t *testing.T) {
	notes := map[uint32]string{1: "one", 7: "", 9: "nine\n"}
	b := AppendNotes(nil, notes)
	if got, err := ParseNotes(b, 9); err != nil || !maps.Equal(got, notes) {
		t.Errorf("%v, %v", got, err)
	}
	whole := map[int]bool{8: true, 19: true, 27: true}
	for n := range b {
		if _, err := ParseNotes(b[:n], 9); (err == nil) != whole[n] {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	if _, err := ParseNotes(b, 8); err == nil || !strings.Contains(err.Error(), "bad id 9 at offset 27") {
		t.Error(err)
	}
	if _, err := ParseNotes(append(b, b[8:]...), 9); err == nil {
		t.Error("an id comes twice")
	}
}

// FuzzNotes: what is read is written back, and costs no more than it is long.
func FuzzNotes(f *testing.F) {
	f.Add(AppendNotes(nil, map[uint32]string{1: "one", 2: "two"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var notes map[uint32]string
		var err error
		cost.Check(t, len(b), 16, func() { notes, err = ParseNotes(b, 1000) })
		if err == nil && len(AppendNotes(nil, notes)) != len(b) {
			t.Errorf("read %q, written %q", b, AppendNotes(nil, notes))
		}
	})
}

// FuzzParse: what is read is written back, and costs no more than it is long.
func FuzzParse(f *testing.F) {
	f.Add(table(0), (&Info{}).Append(nil))
	f.Add(table(0, Row{1, 2}, Row{3, 4}), (&Info{Image: 7, Sites: 2, BuildID: []byte{1, 2}}).Append(nil))
	f.Fuzz(func(t *testing.T, sites, info []byte) {
		cost.Check(t, len(sites)+len(info), 1, func() {
			rows, err := ParseRows(sites)
			if err == nil {
				for i := range rows.Len() {
					rows.At(i)
				}
			}
			_, _ = ParseInfo(info)
		})
		if rows, err := ParseRows(sites); err == nil {
			all := make([]Row, rows.Len())
			for i := range all {
				all[i] = rows.At(i)
			}
			if b := table(rows.base, all...); !bytes.HasPrefix(sites, b) {
				t.Errorf("read %x, written %x", sites, b)
			}
		}
		if in, err := ParseInfo(info); err == nil {
			if b := in.Append(nil); !bytes.HasPrefix(info, b) {
				t.Errorf("read %x, written %x", info, b)
			}
		}
	})
}
