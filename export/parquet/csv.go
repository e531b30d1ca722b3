package parquet

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"github.com/fentry-dev/fentry/internal/parquet"
	"github.com/fentry-dev/fentry/internal/safetext"
)

// csvTable writes a table as comma-separated values below a line with the columns' names, quoted as RFC 4180 says. Whoever
// reads them knows nothing of directories' names, so each row begins with the columns host, program and run.
type csvTable struct {
	w       *csv.Writer
	columns []parquet.Column
	row     []string // with those three
	err     error
}

// ofRun are the columns that rows begin with.
var ofRun = []string{"host", "program", "run"}

func newCSV(w io.Writer, r *run, columns []parquet.Column) (sink, error) {
	t := &csvTable{w: csv.NewWriter(w), columns: columns}
	names := append([]string(nil), ofRun...)
	for _, c := range columns {
		names = append(names, c.Name)
	}
	t.row = []string{safetext.Line(r.host), safetext.Line(r.program), r.number}
	return t, t.w.Write(names)
}

// Int is that of sink. Times are UTC, with the fraction of a second behind a point.
func (t *csvTable) Int(v int64) {
	if t.columns[len(t.row)-len(ofRun)].Type == parquet.Time {
		t.add(time.Unix(0, v).UTC().Format("2006-01-02 15:04:05.000000000"))
		return
	}
	t.add(strconv.FormatInt(v, 10))
}

// Text is that of sink.
func (t *csvTable) Text(s string) { t.add(safetext.Line(s)) }

func (t *csvTable) add(s string) {
	t.row = append(t.row, s)
	if len(t.row) < len(ofRun)+len(t.columns) {
		return
	}
	if t.err == nil {
		t.err = t.w.Write(t.row)
	}
	t.row = t.row[:len(ofRun)]
}

func (t *csvTable) Err() error { return t.err }

func (t *csvTable) Close() error {
	t.w.Flush()
	if t.err == nil {
		t.err = t.w.Error()
	}
	return t.err
}
