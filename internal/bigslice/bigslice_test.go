package bigslice_test

import (
	"testing"

	"github.com/fentry-dev/fentry/internal/bigslice"
)

func TestMake(t *testing.T) {
	type pair struct {
		name string
		v    uint64
	}
	for _, room := range []int{0, 1, 1000, 1 << 20} {
		s := bigslice.Make[pair](room/2, room)
		if len(s) != room/2 || cap(s) != room {
			t.Errorf("Make(%d, %d): length %d, capacity %d", room/2, room, len(s), cap(s))
		}
		s = s[:room]
		for i := range s {
			if s[i] != (pair{}) {
				t.Fatalf("Make(%d, %d): element %d is not zero", room/2, room, i)
			}
			s[i] = pair{"x", uint64(i)}
		}
	}
}

func TestGrow(t *testing.T) {
	s := bigslice.Grow([]int{1, 2}, 3)
	if len(s) != 2 || cap(s) < 5 || s[0] != 1 || s[1] != 2 {
		t.Errorf("Grow: %v, capacity %d", s, cap(s))
	}
	if again := bigslice.Grow(s, 3); &again[0] != &s[0] {
		t.Error("Grow moved a slice with room")
	}
}

func BenchmarkMake(b *testing.B) {
	const n = 64 << 20
	b.SetBytes(n)
	for b.Loop() {
		s := bigslice.Make[byte](n, n)
		for i := 0; i < n; i += 4096 {
			s[i] = 1
		}
	}
}

func BenchmarkPlainMake(b *testing.B) {
	const n = 64 << 20
	b.SetBytes(n)
	for b.Loop() {
		s := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			s[i] = 1
		}
	}
}
