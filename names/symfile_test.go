package names

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/format"
)

func sample() *Table {
	return &Table{
		Path: "/opt/a program/of\nmine", BuildID: []byte{0xab, 0xcd, 0x01}, Image: 0x1234, Machine: "x86_64", Entry: 0x401000, Module: "example.org/m",
		Go: "go1.99 described",
		Funcs: []Func{
			{0, 0x401000, 0x22, 0x401000, "none", "_start"},
			{0, 0x401100, 0, 0x401100, "none", ""},
			{1, 0x401200, 0x10, 0x401204, "fentry-call", "main"},
			{2, 0x401300, 0x7f, 0x401308, "mcount-call", "_ZN2ns3Foo3barEi"},
			{3, 0x401400, 0x7f, 0x401400, "patchable", "tab\there, back\\slash, \xff\xfe, é"},
			{9, 0xffffffff81000000, 1, 0xffffffff81000000, "xray", "high"},
		},
		Aliases:  map[uint64][]string{0x401300: {"_ZN3Foo3bazEi", "two\nlines"}},
		Captures: map[uint32]string{2: `{"n":"a\tb"}`, 9: ""},
	}
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, sample()); err != nil {
		t.Fatal(err)
	}
	want := "# path: /opt/a program/of\\x0amine\n# build-id: abcd01\n# image: 0000000000001234\n# machine: x86_64\n# entry: 401000\n" +
		"# module: example.org/m\n# go: go1.99 described\n# capture: 2 {\"n\":\"a\\x5ctb\"}\n# capture: 9 \n" +
		"0\t401300\t0\t401300\talias\t_ZN3Foo3bazEi\n0\t401300\t0\t401300\talias\ttwo\\x0alines\n" +
		"0\t401000\t22\t401000\tnone\t_start\n" +
		"0\t401100\t0\t401100\tnone\t\n" +
		"1\t401200\t10\t401204\tfentry-call\tmain\n" +
		"2\t401300\t7f\t401308\tmcount-call\t_ZN2ns3Foo3barEi\n" +
		"3\t401400\t7f\t401400\tpatchable\ttab\\x09here, back\\x5cslash, \xff\xfe, é\n" +
		"9\tffffffff81000000\t1\tffffffff81000000\txray\thigh\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), got); d != "" {
		t.Error(d)
	}
	for id, name := range map[uint32]string{1: "main", 2: "_ZN2ns3Foo3barEi", 9: "high"} {
		if e, ok := got.lookup(id); !ok || e.Name != name {
			t.Errorf("id %d: %v %v", id, e, ok)
		}
	}
	for _, id := range []uint32{0, 4, 8, 10, format.IDMax + 1} {
		if e, ok := got.lookup(id); ok {
			t.Errorf("id %d: %v", id, e)
		}
	}
}

// Funcs in another order come out sorted, and the caller's slice stays.
func TestWriteSorts(t *testing.T) {
	s := &Table{Funcs: []Func{{2, 2, 0, 0, "k", "b"}, {0, 9, 0, 0, "k", "z"}, {1, 1, 0, 0, "k", "a"}, {0, 8, 0, 0, "k", "y"}}}
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	got, err := Read(&b)
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for _, e := range got.Funcs {
		names.WriteString(e.Name)
	}
	if names.String() != "zyab" || s.Funcs[0].Name != "b" {
		t.Errorf("got %q, caller has %v", names.String(), s.Funcs)
	}
}

func TestWriteErrors(t *testing.T) {
	for name, e := range map[string][]Func{
		"reserved": {{format.IDMax + 1, 1, 1, 1, "k", "n"}},
		"same":     {{1, 1, 1, 1, "k", "n"}, {1, 2, 2, 2, "k", "m"}},
		"too long": {{1, 1, 1, 1, "k", strings.Repeat("x", maxLine)}},
	} {
		if err := Write(io.Discard, &Table{Funcs: e}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	broken := errors.New("disk full")
	if err := Write(failing{broken}, sample()); !errors.Is(err, broken) {
		t.Errorf("a writer's error is lost: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestReadErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"1\t2\t3\t4\tk\n", "line 1: want 6 fields"},
		{"1\t2\t3\t4\tk\tn\tx\n", "line 1: want 6 fields"},
		{"\n#\n1\t2\t3\t4\tk\tn", "line 3: the file ends inside a line"},
		{"x\t2\t3\t4\tk\tn\n", "bad id"},
		{"2147352576\t2\t3\t4\tk\tn\n", "bad id"},
		{"1\t0x2\t3\t4\tk\tn\n", "bad hexadecimal"},
		{"1\t2\t3\t11111111111111111\tk\tn\n", "bad hexadecimal"},
		{"1\t2\t3\t4\tk\tn\\x0\n", "bad escape"},
		{"1\t2\t3\t4\tk\t\\n\n", "bad escape"},
		{"1\t2\t3\t4\tk\tn\n1\t2\t3\t4\tk\tn\n", "line 2: id 1 after 1"},
		{"2\t2\t3\t4\tk\tn\n0\t2\t3\t4\tk\tn\n", "line 2: id 0 after 2"},
		{"# image: xyz\n", "line 1: image"},
		{"# capture: 0 {}\n", "line 1: capture: bad id"},
		{"# build-id: abc\n", "line 1: build-id"},
		{"1\t2\t3\t4\tk\t" + strings.Repeat("n", maxLine) + "\n", "line 1: longer than"},
	} {
		if _, err := Read(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: %v, want %s", tt.text, err, tt.want)
		}
		if _, err := Load(strings.NewReader(tt.text), MaxSymFile); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: loaded: %v, want %s", tt.text, err, tt.want)
		}
	}
	s, err := Read(strings.NewReader("# later: key\n#comment\n\n# path:\n1\t2\t3\t4\tk\t\n"))
	if err != nil || len(s.Funcs) != 1 {
		t.Errorf("%+v %v", s, err)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	if err := Write(&b, sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("# path: x\n1\t2\t3\t4\tk\tn\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s *Table
		var err error
		// Two buffers for reading, and an entry of 72 bytes for a line of 11.
		cost.Check(t, len(b), 64, func() { s, err = Read(bytes.NewReader(b)) })
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := Write(&out, s); err != nil {
			t.Fatal(err)
		}
		again, err := Read(&out)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, again); d != "" {
			t.Fatal(d)
		}
		var sf *SymFile
		// A block of 12 bytes for a line of 11, where each is in a piece of its own.
		cost.Check(t, len(b), 16, func() { sf, err = Load(bytes.NewReader(b), MaxSymFile) })
		if err != nil {
			t.Fatal(err)
		}
		checkSymFile(t, s, sf)
	})
}

// checkSymFile compares what was read in two ways.
func checkSymFile(t *testing.T, s *Table, sf *SymFile) {
	t.Helper()
	head := *s
	head.Funcs = nil
	if d := cmp.Diff(&head, &sf.Head); d != "" || sf.MaxID() != s.MaxID() {
		t.Fatal(sf.MaxID(), d)
	}
	if d := cmp.Diff(slices.Collect(s.Traced()), slices.Collect(sf.Traced())); d != "" {
		t.Fatal(d)
	}
	for i := range s.Funcs {
		if e := &s.Funcs[i]; e.ID != 0 {
			if got, ok := s.lookup(e.ID); !ok || got != e {
				t.Fatalf("id %d not found", e.ID)
			}
			for _, id := range []uint32{e.ID - 1, e.ID, e.ID + 1} {
				want, found := s.Func(id)
				if got, ok := sf.Func(id); ok != found || got != want {
					t.Fatalf("id %d: %+v, want %+v", id, got, want)
				}
			}
		}
	}
}

// Large tables are found by id, in blocks and pieces, with holes between ids.
func TestSymFile(t *testing.T) {
	s := &Table{Path: "/bin/prog", Funcs: []Func{{Addr: 1, Kind: "none", Name: "untraced"}}}
	for i := range 30_000 {
		name := fmt.Sprint("function_", i)
		if i%5000 == 4999 {
			name = strings.Repeat("long", 500_000)
		}
		s.Funcs = append(s.Funcs, Func{uint32(2*i + 1 + i/100), uint64(i) * 16, 16, uint64(i), "plain", name})
	}
	var b bytes.Buffer
	if err := Write(&b, s); err != nil {
		t.Fatal(err)
	}
	sf, err := Load(bytes.NewReader(b.Bytes()), MaxSymFile)
	if err != nil {
		t.Fatal(err)
	}
	checkSymFile(t, s, sf)
	if _, err := Load(bytes.NewReader(b.Bytes()), sf.Size()-1); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if _, err := Load(bytes.NewReader(b.Bytes()), sf.Size()); err != nil {
		t.Error(err)
	}
}

// A file of the shortest lines takes little more memory than it has bytes.
func TestSymFileMemory(t *testing.T) {
	var b bytes.Buffer
	for i := range 400_000 {
		fmt.Fprintf(&b, "%d\t0\t0\t0\t\t\n", i+1)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	sf, err := Load(&b, MaxSymFile)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, size := int64(after.TotalAlloc-before.TotalAlloc), sf.Size(); got > size*3/2+4<<20 {
		t.Errorf("%d bytes for a file of %d", got, size)
	}
	runtime.KeepAlive(sf)
}

func BenchmarkRead(b *testing.B) {
	s := &Table{}
	for i := range 100000 {
		s.Funcs = append(s.Funcs, Func{uint32(i + 1), uint64(i) * 64, 64, uint64(i) * 64, "fentry-call", "_ZN2ns3Foo3barEi"})
	}
	var buf bytes.Buffer
	if err := Write(&buf, s); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		if _, err := Read(bytes.NewReader(buf.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
