package trace

import "github.com/fentry-dev/fentry/internal/format"

// Sizes in bytes.
const (
	DefaultChunkSize = format.ChunkSize   // a chunk, including its header
	ChunkHeaderSize  = format.ChunkHeader // smallest chunk
)

// A ChunkKind says what a chunk holds.
type ChunkKind uint16

// Kinds of chunk.
const (
	ChunkEvents  ChunkKind = format.KindEvents  // events of a task
	ChunkImage   ChunkKind = format.KindImage   // what a program image is
	ChunkProfile ChunkKind = format.KindProfile // counts and times per function, no stream of events
	ChunkCount   ChunkKind = format.KindCount   // counts per function, no times
	ChunkMap     ChunkKind = format.KindMap     // images loaded in a process
	ChunkSched   ChunkKind = format.KindSched   // when a thread was off a processor

	ChunkSwitchedOff ChunkKind = format.KindSwitchedOff // functions that are not recorded any more
	ChunkCompressed  ChunkKind = format.KindCompressed  // events of a task, compressed
)

// A Policy says what a writer does when no chunk is free.
type Policy uint32

// Policies.
const (
	PolicyBlock     Policy = format.PolicyBlock     // the task waits for the recorder
	PolicyDrop      Policy = format.PolicyDrop      // the task goes on, its events are lost and counted
	PolicyOverwrite Policy = format.PolicyOverwrite // the task's oldest chunk is used again
)

// A Layout says how the chunks of a file are laid out after its header.
type Layout uint32

// Layouts.
const (
	LayoutSlots  Layout = format.LayoutSlots  // at multiples of the chunk size
	LayoutPacked Layout = format.LayoutPacked // one after another
)
