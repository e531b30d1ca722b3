package perf

import (
	"slices"
	"sync"
)

// A Chunk is a chunk of a trace, made of records of one process.
type Chunk struct {
	PID    uint32 // as it sees itself
	Host   uint32 // as it is seen from here; in another PID namespace that is another one
	Events uint64
	Bytes  []byte
}

// Chunks are finished chunks that wait until somebody takes them: those of processes that record nothing, or when the disk
// is slow, nobody takes. All methods can be called at the same time.
type Chunks struct {
	mu     sync.Mutex
	list   []Chunk // oldest first
	bytes  int     // in them
	events uint64  // in all that there were
	gave   uint64  // in those that were given up
}

// Keep keeps a chunk until it is taken. If those that wait have more than most bytes, the oldest are given up.
func (q *Chunks) Keep(c Chunk, most int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, c)
	q.events += c.Events
	for q.bytes += len(c.Bytes); q.bytes > most; {
		q.gave += q.list[0].Events
		q.bytes -= len(q.list[0].Bytes)
		q.list = q.list[1:]
	}
}

// Take returns chunks for the trace, of processes that want says yes to. The others stay for later.
func (q *Chunks) Take(want func(pid, host uint32) bool) (chunks [][]byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.DeleteFunc(q.list, func(c Chunk) bool {
		if !want(c.PID, c.Host) {
			return false
		}
		chunks = append(chunks, c.Bytes)
		q.bytes -= len(c.Bytes)
		return true
	})
	return chunks
}

// Events returns how many events were kept, and how many of these were given up.
func (q *Chunks) Events() (kept, gave uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.events, q.gave
}
