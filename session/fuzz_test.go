//go:build linux

package session

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/cost"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// FuzzProcfs: a stat file is read right whatever the program calls itself, and a shared file is found in a maps file
// where a line says all of it.
func FuzzProcfs(f *testing.F) {
	f.Add([]byte("7 (a) b ) 1) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"), byte('S'), uint64(4711))
	f.Add([]byte("7f0000000000-7f0000010000 rw-s 00000000 00:01 4711 /memfd:fentry-pool (deleted)\n"), byte('Z'), uint64(1)<<63)
	for _, name := range []string{"stat", "maps"} {
		if b, err := os.ReadFile("/proc/self/" + name); err == nil {
			f.Add(b[:min(len(b), 4096)], byte('R'), uint64(9))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, state byte, start uint64) {
		cost.Check(t, len(b), 100, func() { parseStat(b) })
		line := fmt.Appendf(nil, "12 (%s) %c 1 2 3 -1 5 6 7 8 9 10 11 12 13 14 15 16 17 18 %d 20 21\n", b, state|0x40&^0x80, start)
		if bytes.IndexByte([]byte(" \t\n\v\f\r)\x85\xa0"), state|0x40&^0x80) < 0 && state|0x40&^0x80 < 0x80 {
			if s, err := parseStat(line); err != nil || s.state != state|0x40&^0x80 || s.start != start {
				t.Errorf("%q: %+v, %v", line, s, err)
			}
		}
		pool := sharedFile{4711, "/memfd:fentry-pool (deleted)"}
		mapped := pool.in(b)
		if mapped && !bytes.Contains(b, []byte("4711")) {
			t.Errorf("found in %q", b)
		}
		one := []byte("7f0000000000-7f0000010000 rw-s 00000000 00:01 4711                       /memfd:fentry-pool (deleted)\n")
		other := bytes.ReplaceAll(one, []byte("4711"), []byte("4712"))
		if len(b) > 0 && b[len(b)-1] != '\n' {
			b = append(bytes.Clone(b), '\n')
			mapped = pool.in(b)
		}
		if !pool.in(append(bytes.Clone(b), one...)) || !pool.in(append(bytes.Clone(one), b...)) || pool.in(append(bytes.Clone(b), other...)) != mapped {
			t.Errorf("%q and a line of the pool's", b)
		}
	})
}

// FuzzAuxv: whatever a process has on its stack, what is read of it is there.
func FuzzAuxv(f *testing.F) {
	words := func(w ...uint64) (b []byte) {
		for _, v := range w {
			b = le.AppendUint64(b, v)
		}
		return b
	}
	f.Add(words(1, 0x7ff0, 0, 0x7ff8, 0, atPhdr, 0x400040, atPhnum, 9, atEntry, 0x401000, atNull, 0))
	f.Add(words(0, 0, 0, atEntry, 1, atNull))
	f.Add(words(1<<63, 0))
	f.Add(words(2<<20-1, 0))
	file, err := os.Create(filepath.Join(f.TempDir(), "mem"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		tr := &tracee{mem: file}
		var aux map[uint64]auxEntry
		var err error
		cost.Check(t, len(b), 200, func() { aux, err = tr.auxv(0) })
		if err != nil {
			if aux != nil {
				t.Errorf("%v with %v", aux, err)
			}
			return
		}
		for key, e := range aux {
			if e.addr%8 != 0 || e.addr < 8 || e.addr+8 > uint64(len(b)) || le.Uint64(b[e.addr:]) != e.val || le.Uint64(b[e.addr-8:]) != key {
				t.Errorf("%d: %+v, of %d bytes", key, e, len(b))
			}
		}
	})
}

// Whatever a traced process puts into a chunk, the drainer survives it.
func FuzzChunk(f *testing.F) {
	f.Add([]byte("path=/bin/x\x00bias=0x1000\x00nsites=12\x00cmdline=a\x1fb\x1f\x00mode=profile\x00"))
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0xff, 0x7f, 2, 0, 0, 0, 9, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x80}, 9))
	f.Add(bytes.Repeat([]byte{1, 2, 3, 4, 6, 0, 0xff, 0x7f}, 5))
	f.Fuzz(func(t *testing.T, payload []byte) {
		b := make([]byte, format.ChunkSize)
		le.PutUint32(b, format.ChunkMagic)
		n := copy(b[format.ChunkHeader:], payload)
		used := seal(b)
		if used < format.ChunkHeader || used > len(b) || used > format.ChunkHeader+n+7 {
			t.Fatalf("%d bytes used of %d", used, n)
		}
		got, _ := countEvents(b[format.ChunkHeader:used])
		if want := countSlowly(b[format.ChunkHeader:used]); got != want {
			t.Errorf("%d events, want %d", got, want)
		}
		im := parseImage(1, 2, payload)
		if im.Sites < 0 || im.Sites >= format.ReservedBase {
			t.Errorf("%d sites", im.Sites)
		}
	})
}

// FuzzPool: whatever traced processes put into the pool, what the drainer writes is a trace without a mistake.
func FuzzPool(f *testing.F) {
	const chunks = 6
	chunk := func(kind trace.ChunkKind, size, pid, number, counter uint32, payload ...uint64) []byte {
		b := make([]byte, format.ChunkHeader)
		le.PutUint32(b[format.CMagic:], format.ChunkMagic)
		le.PutUint16(b[format.CKind:], uint16(kind))
		le.PutUint32(b[format.CSize:], size)
		le.PutUint32(b[format.CPID:], pid)
		le.PutUint32(b[format.CTID:], pid)
		le.PutUint32(b[format.CNumber:], number)
		le.PutUint64(b[format.CCounter:], uint64(counter))
		for _, w := range payload {
			b = le.AppendUint64(b, w)
		}
		return b
	}
	self := uint32(os.Getpid())
	events := chunk(trace.ChunkEvents, 0, self, 1, 50, 1<<32|1, 1<<63|1<<32|2, 0, 2<<32|9)
	image := append(chunk(trace.ChunkImage, 0, self, 0, 0), "path=/bin/x\x00nsites=12\x00"...)
	f.Add([]byte{2, 2, 1, 0, 3, 2}, events, image, byte(0))
	f.Add([]byte{2, 2, 2, 2, 2, 2}, events, chunk(trace.ChunkEvents, format.ChunkSize, 1<<31, 0, 40, 5<<32), byte(2))
	f.Add([]byte{1, 1, 2, 2, 9, 2}, chunk(trace.ChunkProfile, 1<<20, 1, 0, 9, 7), chunk(trace.ChunkEvents, 8, 0, 0, 40), byte(1))
	p, err := newPool(chunks*format.ChunkSize, trace.PolicyBlock, clockReading{}, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.close)
	dir := f.TempDir()
	file, err := os.Create(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	header := make([]byte, format.HeaderSize)
	f.Fuzz(func(t *testing.T, states, one, two []byte, policy byte) {
		clear(p.mem[format.StatesOff:])
		for i := range chunks {
			from := [][]byte{one, two}[i%2]
			copy(p.chunk(i), from)
			if i >= 2 && len(states) > 0 { // not all alike
				p.chunk(i)[int(states[0])%len(p.chunk(i))] ^= byte(i)
			}
			if i < len(states) {
				p.state(i).Store(uint32(states[i]))
			}
		}
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		putHeader(header, 0, format.HeaderSize, trace.Policy(policy%3), trace.LayoutPacked, 1, clockReading{}, 1e9)
		if _, err := file.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
		w := &eventsFile{f: file}
		if _, err := w.write([][]byte{header}); err != nil {
			t.Fatal(err)
		}
		d := newDrainer(p, w, trace.Policy(policy%3), newLiveness(sharedFile{}))
		images := 0
		d.onImage = func(Image) { images++ }
		d.onWriteError = func(err error) { t.Error(err) }
		cost.Check(t, chunks*format.ChunkSize, 20, func() {
			d.round(false)
			d.reclaim()
			d.last(policy&4 != 0)
		})
		tr, err := trace.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		for _, err := range tr.Problems {
			if !strings.Contains(err.Error(), "image chunk") { // a mistake in what an image says of itself
				t.Error(err)
			}
		}
		if uint64(tr.Chunks) != d.stats.chunks || tr.Bytes != w.size-format.HeaderSize {
			t.Errorf("%d chunks of %d bytes are written, %d of %d read", d.stats.chunks, w.size-format.HeaderSize, tr.Chunks, tr.Bytes)
		}
		if images > int(d.stats.chunks) {
			t.Errorf("%d images in %d chunks", images, d.stats.chunks)
		}
		for i := range chunks {
			if s := p.state(i).Load(); s == format.StateFull || policy&4 != 0 && s == format.StateOwned && atomicMagic(p.chunk(i)) == format.ChunkMagic {
				t.Errorf("chunk %d is left in state %d", i, s)
			}
		}
	})
}
