package trace

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/names"
	"github.com/google/go-cmp/cmp"
)

// countTrace is a trace of counts: two tasks, ids of two images.
func countTrace(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 100, CounterHz: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	w.WriteMap(1, 100, []MapEntry{{First: 1, Count: 3, Image: 7}, {First: 4, Count: 2, Image: 8}})
	for tid := range 2 {
		k := w.Task(TaskID{PID: 1, TID: 1 + tid, Image: 7, Comm: "c"})
		if err := k.Count(uint64(100+tid), 0, []uint64{99, 5, 0, 1 << 40, 0, 3}); err != nil { // 99 is nobody's
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestCounts reads tables of counts: for all tasks and for each, packed and in slots; there are no times.
func TestCounts(t *testing.T) {
	packed := countTrace(t)
	slots := bytes.Clone(packed)
	binary.LittleEndian.PutUint32(slots[format.HLayout:], uint32(LayoutSlots))
	binary.LittleEndian.PutUint32(slots[format.HChunkSize:], minChunkSize)
	at := len(AppendHeader(nil, Header{}))
	all := slots[:at:at]
	for rest := packed[at:]; len(rest) > 0; {
		n := binary.LittleEndian.Uint32(rest[format.CSize:])
		all = append(append(all, rest[:n]...), make([]byte, minChunkSize-n)...)
		rest = rest[n:]
	}
	for name, file := range map[string][]byte{"packed": packed, "slots": all} {
		tr := open(t, eventsFile(t, file))
		if len(tr.Problems) > 0 || len(tr.Tasks) != 2 {
			t.Fatalf("%s: %v, %d tasks", name, tr.Problems, len(tr.Tasks))
		}
		rows, err := tr.Report(ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		row := func(image, id uint32, label string, calls uint64) FuncStat {
			return FuncStat{
				Func: FuncID{image, id}, Name: label, Calls: calls,
				Total: -1, Sum: -1, Self: -1, Min: -1, Avg: -1, Max: -1, P99: -1, StdDev: -1,
			}
		}
		want := []FuncStat{
			row(0, 3, "0000000000000007:#3", 2<<40), row(0, 1, "0000000000000007:#1", 10), row(1, 2, "0000000000000008:#2", 6),
		}
		if d := cmp.Diff(want, rows); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		rows, err = tr.Report(ReportOptions{PerTask: true, Tasks: tr.Tasks[1:]})
		if err != nil || len(rows) != 3 || rows[1].Calls != 5 || rows[1].Task != tr.Tasks[1] {
			t.Errorf("%s, one task: %v, %v", name, rows, err)
		}
	}
}

// TestNever names the functions that no task has called.
func TestNever(t *testing.T) {
	dir := eventsFile(t, countTrace(t))
	table := func() *names.Table {
		return &names.Table{Funcs: []names.Func{
			{Addr: 0x1000, Name: "untraced"}, {ID: 1, Addr: 0x2000, Name: "b"}, {ID: 2, Addr: 0x3000, Name: "z"},
			{ID: 3, Addr: 0x4000, Name: "a"}, {ID: 4, Addr: 0x5000},
		}}
	}
	for _, tt := range []struct {
		tables [2]*names.Table
		ids    string
		want   string // names, or an error
	}{
		{[2]*names.Table{table(), table()}, "", "a b func_5000 func_5000 z"},
		{[2]*names.Table{table(), nil}, "", "error: image 0000000000000008: no symbols: which of its functions were traced is unknown"},
		{[2]*names.Table{table(), table()}, OffsetIDs,
			"error: image 0000000000000007: linked with the tracer: which of its functions call it is unknown"},
	} {
		tr := open(t, dir)
		tr.Images[0].IDs = tt.ids
		for i, tab := range tt.tables {
			if tr.syms[i] = nil; tab != nil {
				tr.syms[i] = tab
			}
			tr.cache[i] = newNameCache(0)
		}
		rows, err := tr.Report(ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		never, err := tr.Never(rows)
		var have []string
		for _, s := range never {
			have = append(have, s.Name)
			if s.Calls != 0 {
				t.Errorf("%s has %d calls", s.Name, s.Calls)
			}
		}
		if err != nil {
			have = []string{"error: " + err.Error()}
		}
		if got := strings.Join(have, " "); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
