package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fentry-dev/fentry/internal/format"
)

// compressed is a recorder's file of events with those chunks compressed that choose says yes to.
func compressed(t testing.TB, events []byte, choose func(number int) bool) []byte {
	t.Helper()
	h, err := ParseHeader(events)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.Write(events[:h.Size])
	w := &Writer{w: &b}
	var ch chunkHead
	for i, at := 0, int(h.Size); at < len(events); i++ {
		if !parseChunkHead(events[at:], &ch) {
			t.Fatalf("no chunk at %#x", at)
		}
		w.Compress = choose(i)
		if _, err := w.WriteChunk(events[at : at+int(ch.size)]); err != nil {
			t.Fatal(err)
		}
		at += int(ch.size)
	}
	return b.Bytes()
}

func all(int) bool { return true }

func loaded(t testing.TB, events []byte) *Trace {
	t.Helper()
	tr := &Trace{}
	if err := tr.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
		t.Fatal(err)
	}
	return tr
}

// What is read of a trace is the same whichever of its chunks are compressed: all of it and parts, with an index and
// without, through windows of any size.
func TestCompressed(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	events := calmTrace(t, rng)
	for name, choose := range map[string]func(int) bool{
		"all": all, "some": func(i int) bool { return i%3 == 1 },
	} {
		small := compressed(t, events, choose)
		if len(small) > len(events)*9/10 {
			t.Errorf("%s: %d bytes, %d compressed", name, len(events), len(small))
		}
		before, _ := withBlocks(t, events, usualBlocks)
		after, indexed := withBlocks(t, small, usualBlocks)
		if len(after.Problems) > 0 || after.Bytes != before.Bytes || after.Chunks != before.Chunks ||
			after.Stored != int64(len(small))-after.Header.Size || after.Compressed == 0 {
			t.Errorf("%s: %v, %d chunks of %d bytes, %d compressed, %d stored", name, after.Problems, after.Chunks,
				after.Bytes, after.Compressed, after.Stored)
		}
		for _, o := range randomWindows(rng, before, 3) {
			want := seeWalk(before, o)
			if diff := cmp.Diff(want, seeWalk(after, o)); diff != "" {
				t.Fatalf("%s: from %d: %s", name, o.From, diff)
			}
			if diff := cmp.Diff(want, seeWalk(indexed, o)); diff != "" {
				t.Fatalf("%s: from %d, with an index: %s", name, o.From, diff)
			}
		}
		want := ""
		for _, k := range before.Tasks {
			want += words(t, before, k, windowSize)
		}
		for _, window := range []int{minWindow, 1000, windowSize} {
			have := ""
			for _, k := range after.Tasks {
				have += words(t, after, k, window)
			}
			if have != want {
				t.Errorf("%s: with windows of %d bytes other words", name, window)
			}
		}
	}
}

// words are the words of a task, as they are read through a window of so many bytes.
func words(t *testing.T, tr *Trace, k *Task, window int) string {
	t.Helper()
	d := tr.newDecoder(k.chunks, make([]byte, window))
	var s []byte
	var w word
	for d.next(&w) {
		s = binary.LittleEndian.AppendUint64(s, w.t)
		s = append(binary.LittleEndian.AppendUint32(s, w.fn.ID), w.code)
	}
	if d.err != nil {
		t.Fatal(d.err)
	}
	return string(s)
}

// A compressed chunk that is damaged is missing, one that is none is named, and the others are read.
func TestCompressedDamage(t *testing.T) {
	plain := calmTrace(t, rand.New(rand.NewPCG(4, 4)))
	events := compressed(t, plain, all)
	tr := loaded(t, events)
	c := tr.Tasks[0].chunks[1]
	at := fileOffset(c.off)
	le := binary.LittleEndian
	for _, test := range []struct {
		name    string
		damage  func(b []byte) []byte
		problem string
		gaps    bool // seen when it is read
	}{
		{"a bit of the frame", func(b []byte) []byte { b[at+ChunkHeaderSize+40] ^= 4; return b }, "", true},
		{"the size of a column", func(b []byte) []byte {
			le.PutUint32(b[at+ChunkHeaderSize+format.ZIds:], 1<<31)
			return b
		}, "", true},
		{"larger than chunks are", func(b []byte) []byte {
			le.PutUint32(b[at+format.CPlain:], minChunkSize+8)
			return b
		}, "a compressed chunk of 4104 bytes, where one has at most 4096", true},
		{"a huge one", func(b []byte) []byte { le.PutUint32(b[at+format.CPlain:], 0xfffffff8); return b },
			"a compressed chunk of 4294967288 bytes", true},
		{"other words than it says", func(b []byte) []byte {
			le.PutUint32(b[at+format.CPlain:], le.Uint32(b[at+format.CPlain:])-8)
			return b
		}, "", true},
		{"cut off", func(b []byte) []byte { return b[:len(b)-8] }, "cut off at the end of the file", false},
	} {
		tr := &Trace{}
		b := test.damage(bytes.Clone(events))
		if err := tr.load(bytes.NewReader(b), int64(len(b)), noNames); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := fmt.Sprint(errors.Join(tr.Problems...)); !strings.Contains(got, test.problem) ||
			test.problem == "" && len(tr.Problems) > 0 {
			t.Errorf("%s: %s, want %s", test.name, got, test.problem)
		}
		gaps, calls := 0, 0
		err := tr.Walk(WalkOptions{}, func(ev *Event) error {
			switch ev.Kind {
			case Lost:
				gaps++
			case Entry:
				calls++
			}
			return nil
		})
		if err != nil || test.gaps && (gaps != 1 || calls < 15_000) || !test.gaps && gaps > 0 {
			t.Errorf("%s: %d gaps, %d calls, %v", test.name, gaps, calls, err)
		}
	}
}

// A file that programs write themselves has no compressed chunks.
func TestCompressedSlot(t *testing.T) {
	events := compressed(t, calmTrace(t, rand.New(rand.NewPCG(4, 4))), all)
	at := fileOffset(loaded(t, events).Tasks[0].chunks[0].off)
	slots := append(events[:format.HeaderSize:format.HeaderSize], events[at:]...)
	binary.LittleEndian.PutUint32(slots[format.HLayout:], uint32(LayoutSlots))
	tr := loaded(t, slots[:format.HeaderSize+minChunkSize])
	if got := fmt.Sprint(errors.Join(tr.Problems...)); !strings.Contains(got, "a compressed chunk in a slot") {
		t.Error(got)
	}
	if len(tr.Tasks) > 0 || tr.Compressed > 0 {
		t.Errorf("%d tasks, %d compressed chunks", len(tr.Tasks), tr.Compressed)
	}
}

// Memory for decoded chunks does not grow with their number.
func TestCompressedKept(t *testing.T) {
	const size = format.MostPlain
	w := &Writer{Compress: true}
	var file bytes.Buffer
	w.w = &file
	var offs []int64
	for i := range 2 * keptChunks / size {
		offs = append(offs, int64(file.Len()))
		b := appendChunkHeader(make([]byte, 0, size), ChunkEvents, TaskID{PID: 1, TID: 1, Image: testImage}, uint32(i), 100, 0)
		b = append(b, make([]byte, size-len(b))...)
		le := binary.LittleEndian
		le.PutUint64(b[ChunkHeaderSize:], uint64(i+1))
		le.PutUint32(b[format.CSize:], size)
		if _, err := w.WriteChunk(b); err != nil {
			t.Fatal(err)
		}
	}
	p := &plainFile{file: bytes.NewReader(file.Bytes())}
	var word [8]byte
	for range 2 {
		for i, off := range offs {
			if n, err := p.ReadAt(word[:], plainOffset(off)+ChunkHeaderSize); n != 8 || err != nil ||
				binary.LittleEndian.Uint64(word[:]) != uint64(i+1) {
				t.Fatalf("chunk %d: %d bytes, %v", i, n, err)
			}
		}
		if p.bytes > keptChunks || p.order.Len() != len(p.kept) || len(p.kept) != keptChunks/size {
			t.Errorf("%d bytes of %d chunks are kept", p.bytes, len(p.kept))
		}
	}
}
