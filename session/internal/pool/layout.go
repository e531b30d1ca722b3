//go:build linux

package pool

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/trace"
)

var le = binary.LittleEndian

// PutHeader fills in the header of a file or pool. chunks is 0 for a file.
func PutHeader(
	b []byte, chunks int, size int, policy trace.Policy, layout trace.Layout, recorder int, now clock.Reading, hz uint64,
) {
	copy(b[format.HMagic:], format.FileMagic)
	le.PutUint32(b[format.HVersion:], format.Version)
	le.PutUint32(b[format.HHeaderSize:], uint32(size))
	le.PutUint32(b[format.HChunkSize:], format.ChunkSize)
	le.PutUint32(b[format.HChunks:], uint32(chunks))
	le.PutUint32(b[format.HPolicy:], uint32(policy))
	le.PutUint32(b[format.HRecorder:], uint32(recorder))
	le.PutUint64(b[format.HCounter:], now.Counter)
	le.PutUint64(b[format.HMonotonic:], uint64(now.Monotonic))
	le.PutUint64(b[format.HRealtime:], uint64(now.Realtime))
	le.PutUint64(b[format.HCounterHZ:], hz)
	le.PutUint32(b[format.HLayout:], uint32(layout))
}
