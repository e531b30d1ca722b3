// Package parquet writes tables as Apache Parquet files, as much of the format as tables of a trace take: columns
// without nulls or nesting, in pages compressed by zstd, with the least and greatest value of each column of a row
// group. DuckDB, ClickHouse, Spark and pandas read them.
//
//	w, err := parquet.NewWriter(file, []parquet.Column{{"name", parquet.Text}, {"calls", parquet.Int64}})
//	w.Text("main")
//	w.Int(1)
//	err = w.Close()
//
// A file is rows in groups, of each group one page a column, and at the end what is where. That takes this package,
// while the libraries that write all of Parquet bring more code than the rest of fentry. A group is in memory until it
// is whole: GroupRows rows.
//
// The format: https://github.com/apache/parquet-format, with parquet.thrift there for what the metadata is.
package parquet

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// A Type is the type of a column.
type Type uint8

// Types.
const (
	Int64 Type = iota
	Int32
	Time // ns since 1970, UTC
	Text // UTF-8: what is not is replaced
)

// A Column is the name and type of a column.
type Column struct {
	Name string
	Type Type
}

// GroupRows is how many rows a group has, but the last: as many as DuckDB gives a thread to work on.
const GroupRows = 122_880

// magic begins and ends a file.
const magic = "PAR1"

// A Writer writes a table. The values of a row are given one after the other, in the order of the columns.
type Writer struct {
	w       io.Writer
	off     int64
	columns []column
	at      int // column of the next value
	inGroup int // rows
	rows    int64
	groups  []group
	zstd    *zstd.Encoder
	page    []byte
	err     error
}

// A column has the values of the group at hand.
type column struct {
	Column
	plain    []byte
	min, max int64
}

// A group is one that is written.
type group struct {
	rows   int
	chunks []chunk
}

// A chunk is what was written of a column.
type chunk struct {
	off             int64
	stored, size    int // with the page's header
	min, max        int64
	values          int
	withoutExtremes bool
}

// NewWriter begins a file.
func NewWriter(w io.Writer, columns []Column) (*Writer, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, err
	}
	p := &Writer{w: w, zstd: z}
	for _, c := range columns {
		p.columns = append(p.columns, column{Column: c, min: math.MaxInt64, max: math.MinInt64})
	}
	p.write([]byte(magic))
	return p, p.err
}

// next returns the column of the next value, which is to be one of those types.
func (p *Writer) next(text bool) *column {
	c := &p.columns[p.at]
	if (c.Type == Text) != text {
		panic(fmt.Sprintf("parquet: a value of another type than column %s", c.Name))
	}
	return c
}

// Int writes a value of a column of numbers or times.
func (p *Writer) Int(v int64) {
	c := p.next(false)
	c.min, c.max = min(c.min, v), max(c.max, v)
	if c.Type == Int32 {
		c.plain = binary.LittleEndian.AppendUint32(c.plain, uint32(v))
	} else {
		c.plain = binary.LittleEndian.AppendUint64(c.plain, uint64(v))
	}
	p.advance()
}

// Text writes a value of a column of texts.
func (p *Writer) Text(s string) {
	c := p.next(true)
	s = strings.ToValidUTF8(s, "\ufffd")
	c.plain = append(binary.LittleEndian.AppendUint32(c.plain, uint32(len(s))), s...)
	p.advance()
}

// advance goes on to the next column, and behind the last to the next row. The first error is kept until Close.
func (p *Writer) advance() {
	if p.at++; p.at < len(p.columns) {
		return
	}
	p.at = 0
	p.rows++
	if p.inGroup++; p.inGroup == GroupRows {
		p.flush()
	}
}

// Err is the first error of writing.
func (p *Writer) Err() error { return p.err }

// Rows is how many rows there are.
func (p *Writer) Rows() int64 { return p.rows }

func (p *Writer) write(b []byte) {
	if p.err == nil {
		n, err := p.w.Write(b)
		p.off += int64(n)
		p.err = err
	}
}

// flush writes the rows at hand as a group.
func (p *Writer) flush() {
	if p.inGroup == 0 {
		return
	}
	g := group{rows: p.inGroup}
	for i := range p.columns {
		c := &p.columns[i]
		p.page = p.zstd.EncodeAll(c.plain, p.page[:0])
		var h thrift
		h.i32(1, 0) // a data page
		h.i32(2, int64(len(c.plain)))
		h.i32(3, int64(len(p.page)))
		h.begin(5)
		h.i32(1, int64(p.inGroup))
		h.i32(2, plain)
		h.i32(3, rle) // levels, of which a column without nulls and nesting has none
		h.i32(4, rle)
		h.end()
		h.stop()
		g.chunks = append(g.chunks, chunk{
			off: p.off, stored: len(h.b) + len(p.page), size: len(h.b) + len(c.plain),
			min: c.min, max: c.max, values: p.inGroup, withoutExtremes: c.Type == Text,
		})
		p.write(h.b)
		p.write(p.page)
		c.plain, c.min, c.max = c.plain[:0], math.MaxInt64, math.MinInt64
	}
	p.groups, p.inGroup = append(p.groups, g), 0
}

// Close writes what is left, and the end of the file. The io.Writer is its maker's.
func (p *Writer) Close() error {
	p.flush()
	foot := p.metadata()
	p.write(foot)
	p.write(binary.LittleEndian.AppendUint32(nil, uint32(len(foot))))
	p.write([]byte(magic))
	return p.err
}
