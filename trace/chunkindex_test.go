package trace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/format"
)

// indexed is a trace of several tasks, images, maps and a gap, and its file chunks.
func indexed(t testing.TB) (events, list []byte) {
	var b, l bytes.Buffer
	w, err := NewWriter(&b, Header{Counter: 100, Monotonic: 9, Realtime: 8, CounterHz: 1e9, ChunkSize: minChunkSize})
	if err != nil {
		t.Fatal(err)
	}
	w.List = &l
	w.WriteImage(Image{ID: 7, Path: "/bin/prog", Sites: 9})
	w.WriteMap(1, 100, []MapEntry{{First: 1, Count: 9, Image: 7}, {First: 10, Count: 9, Image: 8}})
	var k [3]*TaskWriter
	for i := range k {
		k[i] = w.Task(TaskID{PID: 1 + i, TID: 1 + i, Key: uint64(i), Image: 7, Comm: fmt.Sprint("t", i), Stack: uint64(i), ParentPID: min(i, 1), ParentTID: min(i, 1)})
	}
	for n := range uint64(2400) {
		c := k[n/50%3]
		c.Enter(200+2*n, uint32(n%18+1))
		if n%7 == 0 {
			c.Mark(201+2*n, n, "m")
		}
		c.Exit(201+2*n, uint32(n%18+1))
	}
	k[1].Flush()
	k[1].number++ // a chunk is missing
	k[1].Enter(50000, 3)
	k[2].Profile(60000, 0, []ProfileCount{{}, {Calls: 3}})
	for i := range k {
		if err := k[i].Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes(), l.Bytes()
}

// seeIndex is everything that opening a trace finds, in text.
func seeIndex(tr *Trace) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d chunks %d bytes %d lost %d unknown\n%+v\n%+v\n", tr.Chunks, tr.Bytes, tr.Lost, tr.Unknown, tr.Images, tr.Mappings)
	for _, k := range tr.Tasks {
		fmt.Fprintf(&s, "%v %d %d %d %d %d %v %v %v\n", k, k.PID, k.Start, k.Stack, k.Lost, k.Gaps, k.chunks, k.profiles, k.counts)
	}
	return s.String()
}

// see is everything a reader shows of a trace, in text.
func see(t *testing.T, tr *Trace) string {
	var s strings.Builder
	s.WriteString(seeIndex(tr))
	if err := tr.Walk(WalkOptions{}, func(ev *Event) error {
		e := *ev
		e.Task = nil
		fmt.Fprintf(&s, "%d %+v\n", ev.Task.Index, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rows, err := tr.Report(ReportOptions{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		fmt.Fprintf(&s, "%v %d %d %d\n", r.Func, r.Calls, r.Total, r.Self)
	}
	return s.String()
}

// with reads events with the given file chunks; nil: without one.
func with(t *testing.T, events, list []byte) *Trace {
	t.Helper()
	tr := &Trace{}
	if list != nil {
		tr.list = bytes.NewReader(list)
	}
	if err := tr.load(bytes.NewReader(events), int64(len(events)), Options{}); err != nil {
		t.Fatal(err)
	}
	return tr
}

func listProblems(tr *Trace) (s []string) {
	for _, p := range tr.Problems {
		if strings.Contains(p.Error(), ChunksFile+": ") {
			s = append(s, p.Error())
		}
	}
	return s
}

// TestChunkList: with the file chunks, without it, with any part of it, with a damaged
// one and with another trace's, a trace is the same.
func TestChunkList(t *testing.T) {
	events, list := indexed(t)
	want := see(t, with(t, events, nil))
	same := func(what string, events, list []byte, want, problem string) {
		t.Helper()
		tr := with(t, events, list)
		if have := see(t, tr); have != want {
			t.Errorf("%s: %s", what, cmp.Diff(want, have))
		}
		if p := listProblems(tr); (len(p) == 0) != (problem == "") || len(p) > 0 && !strings.Contains(p[0], problem) {
			t.Errorf("%s: problems %q, want %q", what, p, problem)
		}
	}
	same("whole", events, list, want, "")
	for _, n := range []int{0, 1, 127, 128, 129, len(list) / 2 &^ 127, len(list) - 128, len(list) - 1} {
		same(fmt.Sprint("cut at ", n), events, list[:n], want, "")
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		b := bytes.Clone(list)
		i := rng.IntN(len(b))
		b[i] ^= 1 << rng.IntN(8)
		same(fmt.Sprint("bit of byte ", i), events, b, want, fmt.Sprintf("entry %d is damaged", i/128))
	}
	other := bytes.Clone(events)
	other[format.HRealtime]++
	same("another trace's", other, list, see(t, with(t, other, nil)), "entry 0 is damaged or another trace's")
	swapped := slices.Concat(list[:128], list[256:384], list[128:256], list[384:])
	same("entries in another order", events, swapped, want, "entry 1 is not of the chunk")
	twice := append(bytes.Clone(list), list[len(list)-128:]...)
	same("an entry twice", events, twice, want, "is not of the chunk")
	for _, n := range []int{len(events) - 8, len(events) - 1000, format.HeaderSize + 128, format.HeaderSize + 3} {
		same(fmt.Sprint("events cut at ", n), events[:n], list, see(t, with(t, events[:n], nil)), "")
	}
}

// TestChunkListStale changes a chunk's header in events: what the list says is not
// there counts as missing.
func TestChunkListStale(t *testing.T) {
	events, list := indexed(t)
	tr := with(t, events, list)
	k := tr.Tasks[0]
	second := k.chunks[1]
	events = bytes.Clone(events)
	for i := range 128 {
		events[second.off+int64(i)] = 0xff
	}
	tr = with(t, events, list)
	lost, n := 0, 0
	if err := tr.Walk(WalkOptions{Tasks: tr.Tasks[:1]}, func(ev *Event) error {
		n++
		if ev.Kind == Lost {
			lost++
		}
		return nil
	}); err != nil || lost != 1 || n == 0 {
		t.Errorf("%d of %d events say that some are lost, %v", lost, n, err)
	}
}

// TestChunkListFile checks which files are read at all.
func TestChunkListFile(t *testing.T) {
	events, list := indexed(t)
	dir := eventsFile(t, events)
	path := filepath.Join(dir, ChunksFile)
	want := see(t, open(t, dir))
	for what, c := range map[string]struct {
		make    func() error
		problem string
	}{
		"file":      {func() error { return os.WriteFile(path, list, 0o666) }, ""},
		"directory": {func() error { return os.Mkdir(path, 0o777) }, "not a regular file"},
		"pipe":      {func() error { return unix.Mkfifo(path, 0o666) }, "not a regular file"},
		"link":      {func() error { return os.Symlink("/dev/zero", path) }, "a symbolic link"},
	} {
		if err := c.make(); err != nil {
			t.Fatal(err)
		}
		tr := open(t, dir)
		if d := cmp.Diff(want, see(t, tr)); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		if s := fmt.Sprint(tr.Problems); c.problem != "" && !strings.Contains(s, c.problem) || c.problem == "" && strings.Contains(s, ChunksFile) {
			t.Errorf("%s: %s", what, s)
		}
		os.RemoveAll(path)
	}
}

// FuzzChunkList reads any bytes as the file chunks of a trace: what is shown is what is
// shown without it.
func FuzzChunkList(f *testing.F) {
	events, list := indexed(f)
	var want string
	f.Add(list, 0, byte(0))
	f.Add(list[:300], 256, byte(1))
	f.Add(list, 96, byte(8))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if want == "" {
			want = seeIndex(with(t, events, nil))
		}
		if b = bytes.Clone(b); at >= 0 && at < len(b) {
			b[at] ^= flip
		}
		if have := seeIndex(with(t, events, b)); have != want {
			t.Error(cmp.Diff(want, have))
		}
	})
}

// BenchmarkOpenList opens a trace with the file chunks and without.
func BenchmarkOpenList(b *testing.B) {
	dir := synthetic(b, 16, 10_000_000)
	for _, name := range []string{"with", "without"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				open(b, dir)
			}
		})
		os.Remove(filepath.Join(dir, ChunksFile))
	}
}
