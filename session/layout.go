//go:build linux

package session

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/trace"
)

// What the recorder needs of the trace format. The table is in
// trace/internal/spec; a test compares these numbers with what is made from it.
const (
	fileMagic     = "FENTRYT1"
	formatVersion = 1
	headerSize    = 4096
	chunkSize     = trace.DefaultChunkSize
	chunkHeader   = trace.ChunkHeaderSize
	chunkMagic    = 0x4b435446
	statesOff     = 256

	hMagic       = 0
	hVersion     = 8
	hHeaderSize  = 12
	hChunkSize   = 16
	hChunks      = 20
	hPolicy      = 24
	hRecorder    = 28
	hNext        = 32
	hFreed       = 40
	hFilled      = 44
	hHeartbeat   = 48
	hClosed      = 52
	hWaiters     = 56
	hLeader      = 60
	hLeaderStart = 64
	hCounter     = 72
	hMonotonic   = 80
	hRealtime    = 88
	hCounterHZ   = 96
	hLost        = 104
	hLayout      = 112

	cMagic   = 0
	cKind    = 4
	cSize    = 8
	cPID     = 12
	cTID     = 16
	cNumber  = 20
	cCounter = 24
	cImage   = 40
	cKey     = 48
	cLost    = 56

	stateFree    = 0
	stateOwned   = 1
	stateFull    = 2
	stateWriting = 3

	reservedBase = 0x7fff0000
)

var le = binary.LittleEndian

// poolHeader is where the chunks of a pool start: the states do not always fit
// in one page.
func poolHeader(chunks int) int {
	return (statesOff + 4*chunks + 4095) &^ 4095
}

// putHeader fills in the header of a file or pool. chunks is 0 for a file.
func putHeader(b []byte, chunks int, size int, policy trace.Policy, layout trace.Layout, recorder int, now clockReading, hz uint64) {
	copy(b[hMagic:], fileMagic)
	le.PutUint32(b[hVersion:], formatVersion)
	le.PutUint32(b[hHeaderSize:], uint32(size))
	le.PutUint32(b[hChunkSize:], chunkSize)
	le.PutUint32(b[hChunks:], uint32(chunks))
	le.PutUint32(b[hPolicy:], uint32(policy))
	le.PutUint32(b[hRecorder:], uint32(recorder))
	le.PutUint64(b[hCounter:], now.counter)
	le.PutUint64(b[hMonotonic:], uint64(now.monotonic))
	le.PutUint64(b[hRealtime:], uint64(now.realtime))
	le.PutUint64(b[hCounterHZ:], hz)
	le.PutUint32(b[hLayout:], uint32(layout))
}
