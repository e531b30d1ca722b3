//go:build linux

package switches

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/perf"
)

// What is said of threads, for every order in which records can be there or missing.
func TestThreads(t *testing.T) {
	for _, tt := range []struct{ name, records, want string }{
		{"a life", "begins 10, in 15, out 20, in 30, yielded 40, in 45, ends 50",
			"10-50: ready 10-15, waiting 20-30, ready 40-45"},
		{"it runs when the recording begins", "out 20, in 30, ends 40", "20-40: waiting 20-30"},
		{"it waits then", "in 20, out 30", "20-100: waiting 30-100"},
		{"it never leaves its processor", "begins 10, in 10, ends 50", "10-50:"},
		{"a missing in", "in 10, out 20, out 40, in 50, ends 60", "10-60: waiting 40-50, unknown 20-40"},
		{"a missing out", "in 10, in 40, ends 60", "10-60: unknown 10-40"},
		{"a missing in at the end", "in 10, out 20, ends 60", "10-60: unknown 20-60"},
		{"a missing end", "in 10, out 20, begins 70, in 80, ends 90", "10-20: | 70-90: ready 70-80"},
		{"no room, running", "in 10, unknown 20 40, ends 90", "10-90: unknown 20-90"},
		{"no room, waiting", "in 10, out 15, unknown 20 40, in 50, ends 60", "10-60: unknown 20-50, waiting 15-20"},
		{"records while others can be missing", "in 10, unknown 20 40, out 25, in 30, out 45, in 50, ends 60",
			"10-60: unknown 20-45, waiting 45-50"},
		{"begun while records can be missing", "unknown 5 40, begins 10, in 20, out 30, in 50, ends 60",
			"10-60: unknown 10-50"},
		{"no room twice", "in 10, unknown 20 40, unknown 30 60, out 50, in 70, ends 80", "10-80: unknown 20-70"},
		{"met running", "met 10, out 20, in 30, ends 40", "10-40: waiting 20-30"},
		{"met on its processor, which it never leaves", "met 10", "10-100:"},
		{"met as it waits for a processor", "met 10, in 20, out 30, in 50, ends 60", "10-60: unknown 10-20, waiting 30-50"},
		{"met when it has told", "out 10, met 20, in 30, ends 40", "10-40: waiting 10-30"},
		{"met before what it tells of an earlier time", "met 20, out 10, in 30, ends 40", "20-40: waiting 20-30"},
		{"met while records can be missing", "unknown 5 40, met 10, out 50, in 60, ends 70", "50-70: waiting 50-60"},
		{"no room when it was met", "met 10, unknown 20 40, in 50, ends 60", "10-60: unknown 10-20, unknown 20-50"},
		{"time does not go back", "in 10, out 30, in 20, ends 50", "10-50: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			ts := threads{live: map[uint32]*thread{}, done: func(c perf.Chunk) { got = append(got, text(c.Bytes)) }}
			for line := range strings.SplitSeq(tt.records, ", ") {
				var name string
				r := record{pid: 7, tid: 8}
				fmt.Sscan(line, &name, &r.time, &r.until)
				if name == "met" {
					ts.meet(met{pid: r.pid, tid: r.tid, counter: r.time})
					continue
				}
				r.kind = map[string]kind{"out": out, "yielded": yielded, "in": in, "begins": begins, "ends": ends,
					"unknown": unknown}[name]
				ts.take(&r)
			}
			ts.end(100)
			if have := strings.Join(got, " | "); !same(have, tt.want) {
				t.Errorf("%s\nis  %s\nnot %s", tt.records, have, tt.want)
			}
			if ts.entries != 0 || len(ts.live) != 0 {
				t.Errorf("%d entries of %d threads are left", ts.entries, len(ts.live))
			}
		})
	}
}

// same compares chunks, whose entries the table gives in any order.
func same(a, b string) bool {
	sorted := func(s string) string {
		chunks := strings.Split(s, " | ")
		for i, c := range chunks {
			head, list, _ := strings.Cut(c, ":")
			entries := strings.Split(strings.TrimSpace(list), ", ")
			slices.Sort(entries)
			chunks[i] = head + ":" + strings.Join(entries, ", ")
		}
		return strings.Join(chunks, " | ")
	}
	return sorted(a) == sorted(b)
}

// text is a chunk for people.
func text(b []byte) string {
	var entries []string
	for e := b[format.ChunkHeader:]; len(e) > 0; e = e[format.SchedEntry:] {
		state := map[uint32]string{format.SchedWaiting: "waiting", format.SchedReady: "ready",
			format.SchedUnknown: "unknown"}[le.Uint32(e[format.SState:])]
		entries = append(entries, fmt.Sprintf("%s %d-%d", state, le.Uint64(e[format.SFrom:]), le.Uint64(e[format.STo:])))
	}
	return fmt.Sprintf("%d-%d: %s", le.Uint64(b[format.CCounter:]), le.Uint64(b[format.CUntil:]), strings.Join(entries, ", "))
}

// A thread that is switched very often has chunks of the usual size, one behind the other.
func TestLongThread(t *testing.T) {
	var chunks [][]byte
	ts := threads{live: map[uint32]*thread{}, done: func(c perf.Chunk) { chunks = append(chunks, c.Bytes) }}
	const n = 10 * chunkEntries
	for i := range uint64(n) {
		ts.take(&record{kind: in, tid: 1, time: 10 + 20*i})
		ts.take(&record{kind: out, tid: 1, time: 20 + 20*i})
	}
	ts.end(20 + 20*n)
	at, entries := uint64(10), 0
	for i, c := range chunks {
		if le.Uint64(c[format.CCounter:]) != at || len(c) > format.ChunkSize || int(le.Uint32(c[format.CSize:])) != len(c) ||
			int(le.Uint32(c[format.CNumber:])) != i {
			t.Fatalf("chunk %d: %d bytes, %x", i, len(c), c[:format.ChunkHeader])
		}
		at = le.Uint64(c[format.CUntil:])
		entries += (len(c) - format.ChunkHeader) / format.SchedEntry
	}
	if entries != n || at != 20+20*n {
		t.Errorf("%d entries until %d", entries, at)
	}
}

// Where struct perf_event_mmap_page says what was written and read.
const (
	dataHead = 1024
	dataTail = 1032
)

// Rings are read across their end; what the kernel had no room for is said.
func TestRing(t *testing.T) {
	mem := make([]byte, 4096+256)
	r, data := &ring{Ring: perf.NewRing(mem, 4096)}, mem[4096:]
	head := uint64(0)
	write := func(typ uint32, flags uint16, body []byte, time uint64) {
		b := le.AppendUint32(nil, typ)
		b = le.AppendUint16(b, flags)
		b = le.AppendUint16(b, uint16(recordHeader+len(body)+sampleID))
		b = le.AppendUint64(append(b, body...), 7|8<<32)
		b = le.AppendUint64(b, time)
		for _, c := range b {
			data[head%256] = c
			head++
		}
		le.PutUint64(mem[dataHead:], head)
	}
	read := func() (got []record) {
		r.read(func(rec record) { got = append(got, rec) }, func() uint64 { return 1000 })
		if le.Uint64(mem[dataTail:]) != head {
			t.Error("not all is read")
		}
		return got
	}
	lost := le.AppendUint64(make([]byte, 8), 5)
	for i := range uint64(50) {
		write(typeSwitch, flagOut, nil, 10*i)
		write(99, 0, make([]byte, 24), 10*i+1)
		got := read()
		if !slices.Equal(got, []record{{kind: out, pid: 7, tid: 8, time: 10 * i}}) {
			t.Fatalf("%+v", got)
		}
	}
	write(typeLost, 0, lost, 600) // nobody has seen that there was no room
	got := read()
	if len(got) != 2 || got[0] != (record{kind: unknown, time: 490, until: 600}) || got[1].count != 5 {
		t.Errorf("%+v", got)
	}
	for i := range uint64(8) {
		write(typeSwitch, flagOut|flagPreempt, nil, 700+i)
	}
	got = read() // nearly full
	if n := len(got); n != 9 || got[0].kind != yielded || got[8] != (record{kind: unknown, time: 707, until: 1000}) {
		t.Errorf("%+v", got)
	}
	write(typeLost, 0, lost, 1100)
	if got = read(); len(got) != 1 || got[0].count != 5 {
		t.Errorf("%+v", got)
	}
}

// FuzzRecords gives the bytes of a ring any value: what comes of them are chunks that tell of times in order.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("\x0e\x00\x00\x00\x00\x20\x18\x00\x01\x00\x00\x00\x02\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte(strings.Repeat("\x02\x00\x00\x00\x00\x00\x28\x00", 30)))
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := make([]byte, 4096+1024)
		r := &ring{Ring: perf.NewRing(mem, 4096)}
		le.PutUint64(mem[dataHead:], uint64(copy(mem[4096:], b)))
		ts := threads{live: map[uint32]*thread{}, done: func(c perf.Chunk) {
			at := le.Uint64(c.Bytes[format.CCounter:])
			for e := c.Bytes[format.ChunkHeader:]; len(e) > 0; e = e[format.SchedEntry:] {
				from, to := le.Uint64(e[format.SFrom:]), le.Uint64(e[format.STo:])
				if from < at || to <= from {
					t.Fatal(text(c.Bytes))
				}
				at = to
			}
			if le.Uint64(c.Bytes[format.CUntil:]) < at {
				t.Fatal(text(c.Bytes))
			}
		}}
		r.read(func(rec record) { ts.take(&rec) }, func() uint64 { return 1 << 40 })
		ts.end(1 << 50)
	})
}

// Threads of another PID namespace are told of by their own ids, and those of which these are not known not at all.
func TestInside(t *testing.T) {
	const here, gone = 1 << 30, 1<<30 + 1 // no process has such ids
	var got []string
	ts := threads{live: map[uint32]*thread{}, inside: map[uint32]*inside{}, done: func(c perf.Chunk) {
		got = append(got, fmt.Sprint(c.Host, " ", c.PID, " ", le.Uint32(c.Bytes[format.CTID:]), " ", text(c.Bytes)))
	}}
	for _, r := range []record{
		{kind: in, pid: here, tid: here, time: 10},
		{kind: in, pid: here, tid: here + 5, time: 10}, // it was not asked
		{kind: begins, pid: gone, tid: gone, parent: here, time: 35},
		{kind: out, pid: here, tid: here, time: 40},
		{kind: ends, pid: gone, tid: gone, time: 50},
		{kind: ends, pid: here, tid: here, time: 60},
		{kind: begins, pid: here, tid: here, parent: 1, time: 70}, // another process has the id
		{kind: in, pid: here, tid: here, time: 80},
	} {
		if r.time == 35 {
			ts.isInside(&inside{host: here, pid: 7, space: 1, tids: map[uint32]uint32{here: 8}, counter: 30})
		}
		ts.take(&r)
	}
	ts.end(100)
	want := []string{fmt.Sprint(here, " 7 8 10-60: unknown 40-60"), fmt.Sprint(here, " ", here, " ", here, " 70-100: ready 70-80")}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if ts.seen(1); ts.several {
		t.Error("there is one namespace")
	}
	if ts.seen(2); !ts.several {
		t.Error("there are two namespaces")
	}
}
