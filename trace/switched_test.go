package trace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/trace"
)

// TestSwitchedOff: functions that a recorder has switched off are known by image, id and time, the first one; those of
// ids that nobody has are not. Walks show them where they belong.
func TestSwitchedOff(t *testing.T) {
	const begin, image = 1 << 20, 0x77
	var b, list bytes.Buffer
	w, err := trace.NewWriter(&b, trace.Header{Counter: begin, CounterHz: 1e9, Closed: true})
	if err != nil {
		t.Fatal(err)
	}
	w.List = &list
	if err := w.WriteMap(1, begin, []trace.MapEntry{{First: 101, Count: 9, Image: image, Loaded: begin}}); err != nil {
		t.Fatal(err)
	}
	k := w.Task(trace.TaskID{PID: 1, TID: 1, Key: 1, Comm: "worker"})
	k.Enter(begin+100, 101)
	k.Enter(begin+200, 102)
	k.Exit(begin+300, 102)
	k.Exit(begin+400, 101)
	for _, err := range []error{
		k.Flush(), w.WriteSwitchedOff(begin+350, 5000, 103), w.WriteSwitchedOff(begin+150, 70000, 102, 103, 99, 110, 0),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{trace.EventsFile: b.Bytes(), "chunks": list.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := trace.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	two, three := trace.FuncID{Image: 0, ID: 2}, trace.FuncID{Image: 0, ID: 3}
	want := []trace.SwitchedOff{{Func: two, From: 150, Rate: 70000}, {Func: three, From: 150, Rate: 70000}}
	if d := cmp.Diff(want, tr.SwitchedOff); d != "" {
		t.Error(d)
	}
	if from, ok := tr.OffFrom(two); !ok || from != 150 {
		t.Errorf("off from %d, %v", from, ok)
	}
	if _, ok := tr.OffFrom(trace.FuncID{ID: 1}); ok {
		t.Error("a function that nobody has switched off is off")
	}
	if tr.Unknown != 0 || len(tr.Tasks) != 1 {
		t.Errorf("%d unknown chunks, %d tasks", tr.Unknown, len(tr.Tasks))
	}
	walk := func(from int64, match func(trace.FuncID) bool) (seen []int64) {
		t.Helper()
		err := tr.Walk(trace.WalkOptions{From: from}, tr.WithSwitchedOff(from, match, func(ev *trace.Event) error {
			if ev.Kind == trace.SwitchOff {
				seen = append(seen, -ev.Time, int64(ev.Func.ID))
				if ev.Count != 70000 || ev.Task != tr.Tasks[0] || ev.Depth != 1 {
					t.Errorf("%+v", *ev)
				}
			} else {
				seen = append(seen, ev.Time)
			}
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	for _, tt := range []struct {
		from  int64
		match func(trace.FuncID) bool
		want  []int64
	}{
		{0, nil, []int64{100, -150, 2, -150, 3, 200, 300, 400}},
		{0, func(fn trace.FuncID) bool { return fn == three }, []int64{100, -150, 3, 200, 300, 400}},
		{160, nil, []int64{200, 300, 400}},
	} {
		if have := walk(tt.from, tt.match); !slices.Equal(have, tt.want) {
			t.Errorf("from %d: %v, want %v", tt.from, have, tt.want)
		}
	}
}
