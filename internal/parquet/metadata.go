package parquet

import "encoding/binary"

// Numbers of parquet.thrift.
const (
	typeInt32     = 1
	typeInt64     = 2
	typeByteArray = 6

	plain = 0 // encodings
	rle   = 3

	codecZstd = 6

	utf8 = 0 // a converted type, for readers that do not know logical ones
)

// physical is the type of what is stored.
func (c *Column) physical() int64 {
	switch c.Type {
	case Int32:
		return typeInt32
	case Text:
		return typeByteArray
	}
	return typeInt64
}

// metadata is the file's FileMetaData.
func (p *Writer) metadata() []byte {
	var t thrift
	t.i32(1, 2) // version
	t.list(2, kindStruct, len(p.columns)+1)
	t.element()
	t.text(4, "table")
	t.i32(5, int64(len(p.columns)))
	t.end()
	for i := range p.columns {
		t.schema(&p.columns[i].Column)
	}
	t.i64(3, p.rows)
	t.list(4, kindStruct, len(p.groups))
	for i := range p.groups {
		p.group(&t, &p.groups[i])
	}
	t.text(6, "fentry")
	t.list(7, kindStruct, len(p.columns)) // the orders that least and greatest are of: those of the types
	for range p.columns {
		t.element()
		t.begin(1)
		t.end()
		t.end()
	}
	t.stop()
	return t.b
}

// schema appends a SchemaElement.
func (t *thrift) schema(c *Column) {
	t.element()
	t.i32(1, c.physical())
	t.i32(3, 0) // required
	t.text(4, c.Name)
	switch c.Type {
	case Text:
		t.i32(6, utf8)
		t.begin(10)
		t.begin(1) // STRING
		t.end()
		t.end()
	case Time:
		t.begin(10)
		t.begin(8) // TIMESTAMP
		t.bool(1, true)
		t.begin(2)
		t.begin(3) // NANOS
		t.end()
		t.end()
		t.end()
		t.end()
	}
	t.end()
}

// group appends a RowGroup.
func (p *Writer) group(t *thrift, g *group) {
	total := 0
	t.element()
	t.list(1, kindStruct, len(g.chunks))
	for i := range g.chunks {
		c, col := &g.chunks[i], &p.columns[i]
		total += c.size
		t.element()
		t.i64(2, c.off)
		t.begin(3) // ColumnMetaData
		t.i32(1, col.physical())
		t.list(2, kindI32, 1)
		t.b = zigzag(t.b, plain)
		t.list(3, kindBinary, 1)
		t.b = append(binary.AppendUvarint(t.b, uint64(len(col.Name))), col.Name...)
		t.i32(4, codecZstd)
		t.i64(5, int64(c.values))
		t.i64(6, int64(c.size))
		t.i64(7, int64(c.stored))
		t.i64(9, c.off)
		if !c.withoutExtremes {
			t.begin(12)
			t.text(5, col.value(c.max))
			t.text(6, col.value(c.min))
			t.end()
		}
		t.end()
		t.end()
	}
	t.i64(2, int64(total))
	t.i64(3, int64(g.rows))
	t.end()
}

// value is a number as it is stored.
func (c *Column) value(v int64) string {
	if c.Type == Int32 {
		return string(binary.LittleEndian.AppendUint32(nil, uint32(v)))
	}
	return string(binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

// Kinds of fields in Thrift's compact protocol.
const (
	kindTrue   = 1
	kindFalse  = 2
	kindI32    = 5
	kindI64    = 6
	kindBinary = 8
	kindList   = 9
	kindStruct = 12
)

// A thrift is a structure in Thrift's compact protocol, and those around it: fields are in the order of their numbers,
// each with the difference to the one before.
type thrift struct {
	b     []byte
	last  int
	outer []int
}

func zigzag(b []byte, v int64) []byte { return binary.AppendUvarint(b, uint64(v)<<1^uint64(v>>63)) }

// field appends the head of a field. No structure here has two fields that are more than 15 apart.
func (t *thrift) field(id int, kind byte) {
	t.b = append(t.b, byte(id-t.last)<<4|kind)
	t.last = id
}

func (t *thrift) i32(id int, v int64) {
	t.field(id, kindI32)
	t.b = zigzag(t.b, v)
}

func (t *thrift) i64(id int, v int64) {
	t.field(id, kindI64)
	t.b = zigzag(t.b, v)
}

func (t *thrift) bool(id int, v bool) {
	kind := byte(kindFalse)
	if v {
		kind = kindTrue
	}
	t.field(id, kind)
}

func (t *thrift) text(id int, s string) {
	t.field(id, kindBinary)
	t.b = append(binary.AppendUvarint(t.b, uint64(len(s))), s...)
}

// list appends the head of a list, whose elements follow.
func (t *thrift) list(id int, kind byte, n int) {
	t.field(id, kindList)
	if n < 15 {
		t.b = append(t.b, byte(n)<<4|kind)
		return
	}
	t.b = binary.AppendUvarint(append(t.b, 0xf0|kind), uint64(n))
}

// begin begins a field that is a structure, element one that is an element of a list, and end ends either.
func (t *thrift) begin(id int) {
	t.field(id, kindStruct)
	t.element()
}

func (t *thrift) element() {
	t.outer = append(t.outer, t.last)
	t.last = 0
}

func (t *thrift) end() {
	t.stop()
	n := len(t.outer) - 1
	t.last, t.outer = t.outer[n], t.outer[:n]
}

// stop ends the outermost structure.
func (t *thrift) stop() { t.b = append(t.b, 0) }
