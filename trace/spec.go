package trace

// The format is written down once, in trace/internal/spec. The constants here,
// the header the runtime includes and docs/format.md are made from that table.

//go:generate go run ./internal/gen

// A ChunkKind says what a chunk holds.
type ChunkKind uint16

// A Policy says what a writer does when no chunk is free.
type Policy uint32

// A Layout says how the chunks of a file lie behind its header.
type Layout uint32
