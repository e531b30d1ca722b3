package perf

import "testing"

// Chunks that nobody takes are bounded, the oldest go first, and what goes is counted.
func TestChunks(t *testing.T) {
	const size, most = 64 << 10, 16 << 20
	var q Chunks
	for i := range uint32(300) {
		q.Keep(Chunk{i % 3, i % 3, 2, make([]byte, size)}, most)
	}
	n := len(q.Take(func(pid, _ uint32) bool { return pid == 1 }))
	rest := len(q.Take(func(_, _ uint32) bool { return true }))
	if n+rest != most/size || n < rest/3 || q.bytes != 0 {
		t.Errorf("%d and %d chunks, %d bytes left", n, rest, q.bytes)
	}
	if kept, gave := q.Events(); kept != 600 || gave != 600-2*most/size {
		t.Errorf("%d events, %d given up", kept, gave)
	}
}
