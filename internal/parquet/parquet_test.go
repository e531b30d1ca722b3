package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// A reader reads structures in Thrift's compact protocol, as its specification says.
type reader struct{ b []byte }

func (r *reader) byte() byte {
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	r.b = r.b[n:]
	return v
}

func (r *reader) value(kind byte) any {
	switch kind {
	case kindTrue, kindFalse:
		return kind == kindTrue
	case kindI32, kindI64:
		v := r.uvarint()
		return int64(v>>1) ^ -int64(v&1)
	case kindBinary:
		n := r.uvarint()
		v := r.b[:n]
		r.b = r.b[n:]
		return string(v)
	case kindList:
		head := r.byte()
		n := int(head >> 4)
		if n == 15 {
			n = int(r.uvarint())
		}
		list := make([]any, n)
		for i := range list {
			list[i] = r.value(head & 15)
		}
		return list
	case kindStruct:
		return r.structure()
	}
	panic(fmt.Sprintf("field of kind %d", kind))
}

func (r *reader) structure() map[int]any {
	fields, id := map[int]any{}, 0
	for {
		head := r.byte()
		if head == 0 {
			return fields
		}
		id += int(head >> 4)
		fields[id] = r.value(head & 15)
	}
}

// columns decodes the columns of a file, and checks what the metadata says of them.
func columns(t *testing.T, file []byte, types []Type) (values [][]any) {
	t.Helper()
	n := len(file)
	if string(file[:4]) != magic || string(file[n-4:]) != magic {
		t.Fatalf("% x ... % x", file[:4], file[n-4:])
	}
	foot := file[n-8-int(binary.LittleEndian.Uint32(file[n-8:])) : n-8]
	r := &reader{foot}
	meta := r.structure()
	if len(r.b) != 0 {
		t.Fatalf("%d bytes behind the metadata", len(r.b))
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	values = make([][]any, len(types))
	total := int64(0)
	for _, g := range meta[4].([]any) {
		group := g.(map[int]any)
		rows := group[3].(int64)
		total += rows
		for i, c := range group[1].([]any) {
			m := c.(map[int]any)[3].(map[int]any)
			off, stored := m[9].(int64), m[7].(int64)
			p := &reader{file[off : off+stored]}
			head := p.structure()
			page, err := d.DecodeAll(p.b, nil)
			if err != nil || head[3] != int64(len(p.b)) || head[2] != int64(len(page)) ||
				m[6] != stored-int64(len(p.b))+int64(len(page)) || head[5].(map[int]any)[1] != rows || m[5] != rows {
				t.Fatalf("column %d: %v: %v of %v", i, err, head, m)
			}
			got := plainValues(page, types[i])
			if len(got) != int(rows) {
				t.Fatalf("column %d: %d values of %d", i, len(got), rows)
			}
			if types[i] != Text {
				var ns []int64
				for _, v := range got {
					ns = append(ns, v.(int64))
				}
				col := Column{Type: types[i]}
				stats := m[12].(map[int]any)
				if stats[5] != col.value(slices.Max(ns)) || stats[6] != col.value(slices.Min(ns)) {
					t.Errorf("column %d: %x, of %d to %d", i, stats, slices.Min(ns), slices.Max(ns))
				}
			}
			values[i] = append(values[i], got...)
		}
	}
	if meta[3] != total {
		t.Errorf("%v rows in %d", meta[3], total)
	}
	return values
}

func plainValues(b []byte, typ Type) (values []any) {
	le := binary.LittleEndian
	for len(b) > 0 {
		switch typ {
		case Int32:
			values, b = append(values, int64(int32(le.Uint32(b)))), b[4:]
		case Text:
			n := le.Uint32(b)
			values, b = append(values, string(b[4:4+n])), b[4+n:]
		default:
			values, b = append(values, int64(le.Uint64(b))), b[8:]
		}
	}
	return values
}

// What is written is there, in as many groups as it takes, also nothing.
func TestWrite(t *testing.T) {
	types := []Type{Int64, Int32, Time, Text}
	for _, rows := range []int{0, 1, GroupRows, GroupRows + 5} {
		var file bytes.Buffer
		w, err := NewWriter(&file, []Column{{"a", types[0]}, {"b", types[1]}, {"c", types[2]}, {"d", types[3]}})
		if err != nil {
			t.Fatal(err)
		}
		want := make([][]any, len(types))
		for i := range int64(rows) {
			a, b, c, d := -i<<40, i-7, i*i, fmt.Sprint("text ", i%9)
			w.Int(a)
			w.Int(b)
			w.Int(c)
			w.Text(d)
			for k, v := range []any{a, b, c, d} {
				want[k] = append(want[k], v)
			}
		}
		if err := w.Close(); err != nil || w.Rows() != int64(rows) {
			t.Fatal(err, w.Rows())
		}
		for k, got := range columns(t, file.Bytes(), types) {
			if !slices.Equal(got, want[k]) {
				t.Errorf("%d rows: column %d has other values", rows, k)
			}
		}
	}
}

// Texts that are not UTF-8 are made so, and many columns have a list with a longer head.
func TestWide(t *testing.T) {
	var list []Column
	var types []Type
	for i := range 20 {
		list, types = append(list, Column{fmt.Sprint("c", i), Text}), append(types, Text)
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, list)
	if err != nil {
		t.Fatal(err)
	}
	for range list {
		w.Text("a\xff\x00b")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for i, got := range columns(t, file.Bytes(), types) {
		if len(got) != 1 || got[0] != "a\ufffd\x00b" {
			t.Errorf("column %d: %q", i, got)
		}
	}
}

// limited takes so many bytes.
type limited int

func (l *limited) Write(b []byte) (int, error) {
	if len(b) > int(*l) {
		return 0, io.ErrShortWrite
	}
	*l -= limited(len(b))
	return len(b), nil
}

// The first error is the one that is returned.
func TestError(t *testing.T) {
	room := limited(10)
	w, err := NewWriter(&room, []Column{{"a", Int64}})
	if err != nil {
		t.Fatal(err)
	}
	w.Int(1)
	if err := w.Close(); !errors.Is(err, io.ErrShortWrite) || !errors.Is(w.Err(), io.ErrShortWrite) {
		t.Errorf("%v", err)
	}
}
