package trace

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// directory makes a trace directory of a file of events, with a file index and one of chunks.
func directory(t *testing.T, events []byte) string {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, EventsFile), events, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{IndexFile, ChunksFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("of the plain file"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openDir(t *testing.T, dir string) *Trace {
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr
}

// A compressed trace says what it said, whatever is damaged in it or cut off.
func TestCompress(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	whole := calmTrace(t, rng)
	h, err := ParseHeader(whole)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(b []byte) []byte{
		"whole": func(b []byte) []byte { return b },
		"cut": func(b []byte) []byte {
			return b[:int(h.Size)+rng.IntN(len(b)-int(h.Size))]
		},
		"nothing": func(b []byte) []byte { return b[:h.Size] },
		"some compressed": func(b []byte) []byte {
			return compressed(t, b, func(i int) bool { return i%2 == 0 })
		},
		"damaged": func(b []byte) []byte {
			at := int(h.Size) + len(b)/2&^7
			for i := range 4096 {
				b[at+i] = byte(i * 37)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := directory(t, damage(bytes.Clone(whole)))
			before := openDir(t, dir)
			s, err := Compress(dir)
			if err != nil {
				t.Fatal(err)
			}
			after := openDir(t, dir)
			if s.Before != before.size || s.After != after.size || after.Compressed < s.Chunks ||
				s.Chunks > 0 != (s.After < s.Before) {
				t.Errorf("%+v; %d bytes, %d before; %d compressed", s, after.size, before.size, after.Compressed)
			}
			if name == "whole" && (s.After > s.Before/2 || len(after.Problems) > len(before.Problems)) {
				t.Errorf("%+v, %v", s, after.Problems)
			}
			if diff := cmp.Diff(seeWalk(before, WalkOptions{}), seeWalk(after, WalkOptions{})); diff != "" {
				t.Errorf("events (-plain +compressed):\n%s", diff)
			}
			if fi, err := os.Stat(filepath.Join(dir, EventsFile)); err != nil || fi.Mode() != 0o640 {
				t.Errorf("%v, %v", fi.Mode(), err)
			}
			if _, err := os.Stat(filepath.Join(dir, IndexFile)); err == nil {
				t.Error("the index of the plain file is still there")
			}
			if list, err := os.ReadFile(filepath.Join(dir, ChunksFile)); err != nil || len(list)%ChunkHeaderSize != 0 {
				t.Errorf("a list of %d bytes: %v", len(list), err)
			}
			again, err := Compress(dir)
			if err != nil || again.Chunks != 0 || again.After != s.After {
				t.Errorf("again: %+v, %v", again, err)
			}
		})
	}
}

// What is no trace that can be compressed is left alone: one that is being recorded, one of another layout, a link.
func TestCompressRefuses(t *testing.T) {
	events := calmTrace(t, rand.New(rand.NewPCG(9, 9)))
	refused := func(dir, want string) {
		t.Helper()
		if _, err := Compress(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if b, err := os.ReadFile(filepath.Join(dir, ChunksFile)); err != nil || string(b) != "of the plain file" {
			t.Errorf("%q, %v", b, err)
		}
	}
	dir := directory(t, events)
	f, err := os.Open(filepath.Join(dir, EventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	refused(dir, "is being recorded")

	slots := bytes.Clone(events)
	copy(slots[112:], make([]byte, 4)) // LayoutSlots
	refused(directory(t, slots), "the program has written the trace itself")
	refused(directory(t, events[:100]), "")

	link := directory(t, events)
	path := filepath.Join(link, EventsFile)
	if err := os.Rename(path, path+".there"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".there", path); err != nil {
		t.Fatal(err)
	}
	refused(link, "")
}

// Nobody gets a compressed file's lock, with which directories are moved away, before the list of its chunks is there.
func TestCompressLocked(t *testing.T) {
	events := calmTrace(t, rand.New(rand.NewPCG(8, 8)))
	for range 20 {
		dir := directory(t, events)
		path := filepath.Join(dir, EventsFile)
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		early := make(chan error, 1)
		go func() {
			for {
				f, err := os.Open(path)
				if err != nil {
					early <- err
					return
				}
				if now, err := f.Stat(); err == nil && !os.SameFile(before, now) {
					_ = unix.Flock(int(f.Fd()), unix.LOCK_EX)
					_, err := os.Stat(filepath.Join(dir, ChunksFile))
					f.Close()
					early <- err
					return
				}
				f.Close()
			}
		}()
		if _, err := Compress(dir); err != nil {
			t.Fatal(err)
		}
		if err := <-early; err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{EventsFile, ChunksFile} {
			if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != 0o640 {
				t.Errorf("%s: %v, %v", name, fi.Mode(), err)
			}
		}
	}
}
