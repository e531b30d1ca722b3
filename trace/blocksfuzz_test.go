package trace

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
)

// FuzzIndex reads any bytes as the sections of a task's segment: with right
// checksums, so that nothing but the readers' own checks stands in their way.
func FuzzIndex(f *testing.F) {
	events := wildTurns(f, 1, 15)
	_, indexed := withBlocks(f, events, blockSizes{30, 0, 4, 1 << 20})
	section := func(off int64, n uint32) []byte {
		b := make([]byte, n)
		if err := indexed.blocks.r.read(b, off); err != nil {
			f.Fatal(err)
		}
		return b
	}
	for _, ss := range indexed.blocks.tasks[:min(2, len(indexed.Tasks))] {
		for i := range ss[:min(3, len(ss))] {
			s := &ss[i]
			functions, lists := s.off+int64(s.states), s.off+int64(s.states)+int64(s.functions)
			f.Add(section(s.off, s.states), section(functions, s.functions), section(lists, s.lists),
				section(lists+int64(s.lists), s.sums), section(lists+int64(s.lists)+int64(s.sums), s.gists), uint16(0), s.chunks, int64(5000))
		}
	}
	f.Fuzz(func(t *testing.T, states, functions, lists, sums, gists []byte, task uint16, chunks uint32, from int64) {
		tr := &Trace{}
		if err := tr.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
		k := tr.Tasks[int(task)%len(tr.Tasks)]
		b := slices.Concat(states, functions, lists, sums, gists)
		s := segment{
			last: math.MaxUint64, chunks: chunks, states: uint32(len(states)), functions: uint32(len(functions)),
			lists: uint32(len(lists)), sums: uint32(len(sums)), gists: uint32(len(gists)),
			statesCRC: format.CRC(0, states), functionsCRC: format.CRC(0, functions),
			listsCRC: format.CRC(0, lists), sumsCRC: format.CRC(0, sums), gistsCRC: format.CRC(0, gists), end: true,
		}
		for i := range k.chunks[:min(int64(len(k.chunks)), int64(chunks))] {
			s.chunksCRC = k.chunks[i].crc(s.chunksCRC)
		}
		x := &blockIndex{
			r: segmentReader{bytes.NewReader(b), int64(len(b))}, images: []uint32{0},
			listed: append(binary.LittleEndian.AppendUint64(nil, uint64(tr.Images[0].ID)), 0), tasks: make([][]segment, len(tr.Tasks)),
		}
		x.tasks[k.Index] = []segment{s}
		tr.blocks = x
		o := WalkOptions{From: max(1, from), Tasks: []*Task{k}, Open: true, Calls: Calls{Threshold: from & 1023}}
		_ = tr.Walk(o, func(*Event) error { return nil })
		if _, err := tr.Report(ReportOptions{From: o.From, Tasks: o.Tasks, Calls: o.Calls}); err != nil {
			t.Error(err)
		}
		for _, from := range []int64{0, from} {
			if _, err := tr.Report(ReportOptions{From: from, Tasks: o.Tasks}); err != nil {
				t.Error(err)
			}
			if _, err := tr.Graph(GraphOptions{From: from, Tasks: o.Tasks}); err != nil {
				t.Error(err)
			}
		}
		// What is not whole is gone on with, or made anew.
		x.tasks[k.Index][0].end = false
		tr.blocks, tr.part = nil, x
		if _, err := tr.writeIndex(&memoryFile{}, usualBlocks); err != nil && int64(chunks) <= int64(len(k.chunks)) {
			t.Error(err)
		}
	})
}

// FuzzIndexFile reads any bytes as the segments of an index.
func FuzzIndexFile(f *testing.F) {
	events := wildTurns(f, 1, 15)
	plain, _ := withBlocks(f, events, blockSizes{30, 0, 4, 1 << 20})
	var m memoryFile
	size, err := plain.writeBlocks(&m, blockSizes{30, 0, 2, 1 << 20})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.b[format.IndexHeader:size], true)
	f.Add(m.b[format.IndexHeader:size/2], false)
	f.Fuzz(func(t *testing.T, segments []byte, seal bool) {
		tr := &Trace{}
		if err := tr.load(bytes.NewReader(events), int64(len(events)), noNames); err != nil {
			t.Fatal(err)
		}
		b := append(bytes.Clone(m.b[:format.IndexHeader]), segments...)
		for off := format.IndexHeader; seal && off+format.SegmentSize <= len(b); { // headers with right checksums
			h := b[off : off+format.SegmentSize]
			binary.LittleEndian.PutUint32(h[format.GMagic:], format.SegmentMagic)
			binary.LittleEndian.PutUint32(h[format.GCrc:], format.CRC(format.CRC(0, tr.identity[:]), h[:format.GCrc]))
			off += format.SegmentSize
			for _, field := range []int{format.GStates, format.GFunctions, format.GLists, format.GSums, format.GGists} {
				off += int(binary.LittleEndian.Uint32(h[field:]) & 0xffff)
			}
		}
		x, whole, err := tr.readBlocks(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		if whole {
			tr.blocks = x
		} else {
			tr.part = x
			if tr.blocks, err = tr.writeIndex(&memoryFile{}, usualBlocks); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := tr.Report(ReportOptions{From: 1000, Calls: Calls{Threshold: 100}}); err != nil {
			t.Error(err)
		}
	})
}
