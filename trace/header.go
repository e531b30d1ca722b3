package trace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/fentry-dev/fentry/internal/format"
)

// A Header is the header page of the events file.
type Header struct {
	Version    int
	Size       int64 // where the first chunk starts
	ChunkSize  int64
	Chunks     int64  // of a pool; 0: a file that grows
	Small      int64  // number of small chunks of a pool, after the others
	SmallSize  int64  // bytes
	Next       uint64 // slots used in a growing file, 0 if unknown
	Policy     Policy
	Layout     Layout
	Recorder   int    // process id, 0 if none
	Leader     int    // process id
	Counter    uint64 // counter when the header was written
	Monotonic  uint64 // ns at the same moment
	Realtime   uint64 // ns at the same moment
	CounterHz  uint64 // 0: not known
	LostUnborn uint64 // lost events that no chunk tells of
	Closed     bool   // recording has ended
	Ranges     int64  // offset of the table of id ranges in the header, 0 if none
	RangesRoom int64  // capacity of the table in entries

	// Uncounted is not 0 if events were lost that nobody has counted, between two values of the counter. UncountedTo
	// is 0 if the end is not known.
	Uncounted                  uint32
	UncountedFrom, UncountedTo uint64
	Overwritten                uint64 // events given up for newer ones
}

// Bounds of chunk sizes.
const (
	minChunkSize = 4096
	maxChunkSize = 16 << 20
)

// ParseHeader parses a header page.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < format.StatesOff {
		return Header{}, fmt.Errorf("not a trace: %d bytes, the header has %d", len(b), format.HeaderSize)
	}
	if !bytes.Equal(b[:len(format.FileMagic)], []byte(format.FileMagic)) {
		return Header{}, fmt.Errorf("not a trace: offset 0: magic %q, want %q", b[:len(format.FileMagic)], format.FileMagic)
	}
	u32 := func(off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
	u64 := func(off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	h := Header{
		Version:    int(u32(format.HVersion)),
		Size:       int64(u32(format.HHeaderSize)),
		ChunkSize:  int64(u32(format.HChunkSize)),
		Chunks:     int64(u32(format.HChunks)),
		Small:      int64(u32(format.HSmallChunks)),
		SmallSize:  int64(u32(format.HSmallSize)),
		Next:       u64(format.HNext),
		Policy:     Policy(u32(format.HPolicy)),
		Layout:     Layout(u32(format.HLayout)),
		Recorder:   int(u32(format.HRecorder)),
		Leader:     int(u32(format.HLeader)),
		Counter:    u64(format.HCounter),
		Monotonic:  u64(format.HMonotonic),
		Realtime:   u64(format.HRealtime),
		CounterHz:  u64(format.HCounterHZ),
		LostUnborn: u64(format.HLost),
		Closed:     u32(format.HClosed) != 0,
		Ranges:     int64(u32(format.HRanges)),
		RangesRoom: int64(u32(format.HRangesRoom)),

		Uncounted:     u32(format.HUncounted),
		UncountedFrom: u64(format.HUncountedFrom),
		UncountedTo:   u64(format.HUncountedTo),
		Overwritten:   u64(format.HOverwritten),
	}
	switch {
	case h.Version != format.Version:
		return h, versionError(h.Version)
	case h.Size < format.HeaderSize || h.Size%format.HeaderSize != 0:
		return h, fmt.Errorf("header offset %d: header of %d bytes", format.HHeaderSize, h.Size)
	case h.ChunkSize < minChunkSize || h.ChunkSize > maxChunkSize || bits.OnesCount64(uint64(h.ChunkSize)) != 1:
		return h, fmt.Errorf("header offset %d: chunks of %d bytes", format.HChunkSize, h.ChunkSize)
	case h.Chunks != 0 && h.Size < format.StatesOff+4*(h.Chunks+h.Small):
		return h, fmt.Errorf("header offset %d: %d chunks, but the header of %d bytes has no room for their states",
			format.HChunks, h.Chunks+h.Small, h.Size)
	case h.Small != 0 && (h.Chunks == 0 || h.SmallSize < minChunkSize ||
		h.SmallSize > h.ChunkSize || bits.OnesCount64(uint64(h.SmallSize)) != 1):
		return h, fmt.Errorf("header offset %d: %d small chunks of %d bytes", format.HSmallChunks, h.Small, h.SmallSize)
	case h.Layout > LayoutPacked:
		return h, fmt.Errorf("header offset %d: layout %d is not known", format.HLayout, h.Layout)
	case h.Chunks != 0 && h.Layout == LayoutPacked:
		return h, fmt.Errorf("header offset %d: a pool cannot be packed", format.HLayout)
	}
	return h, nil
}

// versionError says what can be done about a trace of another version.
func versionError(v int) error {
	if v < format.Version {
		return fmt.Errorf("trace format version %d, which was never released; "+
			"this is a reader of version %d: record the program again",
			v, format.Version)
	}
	return fmt.Errorf("trace format version %d; this is a reader of version %d: a newer fentry is needed",
		v, format.Version)
}
