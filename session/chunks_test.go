//go:build linux

package session

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/fixture"
	"github.com/fentry-dev/fentry/trace"
)

// listed checks that the list of chunks names chunks that the events file has, in its
// order from the first on, and returns how many.
func listed(t *testing.T, dir string) int {
	t.Helper()
	events, err := os.ReadFile(filepath.Join(dir, trace.EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(dir, trace.ChunksFile))
	if err != nil {
		t.Fatal(err)
	}
	id := format.IdentityOf(events)
	at := uint64(format.HeaderSize)
	n := 0
	for ; len(list) >= format.ChunkHeader; list = list[format.ChunkHeader:] {
		off, ok := format.IndexOffset(id, list[:format.ChunkHeader])
		if !ok || off != at || off+format.ChunkHeader > uint64(len(events)) {
			t.Fatalf("entry %d: offset %#x, %t, want %#x of %#x", n, off, ok, at, len(events))
		}
		if have, want := string(list[:format.XOffset]), string(events[off:][:format.XOffset]); have != want {
			t.Fatalf("entry %d: %x, want %x", n, have, want)
		}
		at += uint64(le.Uint32(list[format.CSize:]))
		n++
	}
	return n
}

// The recorder lists the chunks it writes, and readers see the same with the list and
// without.
func TestChunksFile(t *testing.T) {
	r := recorderCmd{Buffer: 1 << 20}
	x := r.run(t, fixture.CC(t, "testdata/pool"), "threads", "4", "50")
	if x.code != 0 {
		t.Fatalf("status %d: %s", x.code, x.stderr)
	}
	if n := listed(t, r.Dir); n != len(x.chunks) || n != 4*50 {
		t.Errorf("%d chunks in the list, %d in the file", n, len(x.chunks))
	}
	read := func() string {
		tr, err := trace.Open(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		s := fmt.Sprint(tr.Chunks, tr.Bytes, len(tr.Tasks))
		for _, k := range tr.Tasks {
			s += fmt.Sprintf(" %d %d %d", k.TID, k.Lost, k.Gaps)
		}
		return s
	}
	with := read()
	if err := os.Remove(filepath.Join(r.Dir, trace.ChunksFile)); err != nil {
		t.Fatal(err)
	}
	if without := read(); with != without {
		t.Errorf("with the list %s\nwithout %s", with, without)
	}
}
