//go:build linux

package drain

import (
	"runtime"
	"time"

	"github.com/fentry-dev/fentry/internal/columns"
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/trace"
)

// Compression takes several times as long as writing does, and programs wait for the drainer where no chunk is free. So
// only as many chunks are compressed at a time as take less time than tasks need to fill those that are free, and none
// once tasks have most of the pool, or wait: then chunks are written as they are, until the drainer has caught up. It
// is decided anew for each batch; in one trace chunks of both kinds are mixed as they come.
//
// A chunk stays in the pool until it is written, as without compression, and is written whole: a recorder that is killed
// loses what is in the pool, a program that is killed nothing. To copy chunks and compress them later was considered:
// what is copied would be lost as well, and the memory that it takes does more in the pool.

// restShared is how long a Compressor rests at first when others want the processor, restMost in the end.
const (
	restShared = 100 * time.Millisecond
	restMost   = 800 * time.Millisecond
)

// smallest is the size of contents in bytes from which on it is tried to compress a chunk.
const smallest = 1 << 10

// A Compressor compresses chunks of events. Its methods must not be used at the same time.
type Compressor struct {
	// Idle has it rest while others want the processor. Otherwise it only stops where tasks might have to wait.
	Idle bool

	encoder *columns.Encoder
	room    []byte
	until   time.Time // it rests
	pause   time.Duration
}

// NewCompressor returns a Compressor.
func NewCompressor(idle bool) (*Compressor, error) {
	e, err := columns.NewEncoder()
	if err != nil {
		return nil, err
	}
	return &Compressor{Idle: idle, encoder: e, pause: restShared}, nil
}

// compressible returns how many chunks may be compressed now, before it is asked again.
func (d *Drainer) compressible() int {
	switch c := d.Compress; {
	case c == nil || c.Idle && time.Now().Before(c.until):
		return 0
	case d.final:
		return batchChunks
	case d.p.Word(format.HWaiters).Load() != 0:
		return 0
	}
	free := 0
	for i := range d.p.N {
		if d.p.State(i).Load() == format.StateFree {
			free++
		}
	}
	if free < d.p.N/4 {
		return 0
	}
	// A task that does nothing but make events fills some five chunks in the time that it takes to compress one.
	return max(1, free/16)
}

// compress replaces chunks of events in vec, which is made of the batch, by what they are when compressed.
func (c *Compressor) compress(batch []claim, vec []stored) (done uint64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	work := clock.Begin()
	c.room = c.room[:0]
	for i := range batch {
		if batch[i].head.Kind() != trace.ChunkEvents || len(vec[i].contents) < smallest {
			continue
		}
		at := len(c.room)
		room, ok := c.encoder.Chunk(c.room, vec[i].head, vec[i].contents)
		if c.room = room; ok { // what is in an array that was too small stays there
			vec[i] = stored{room[at:][:format.ChunkHeader], room[at+format.ChunkHeader:]}
			done++
		}
	}
	switch {
	case !work.Shared():
		c.pause = restShared
	case c.Idle:
		c.until = time.Now().Add(c.pause)
		c.pause = min(2*c.pause, restMost)
	}
	return done
}
