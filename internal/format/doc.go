// Package format has the numbers of the trace format and of the runtime's
// configuration, made from the table in internal/spec. Their meaning is in
// docs/format.md. Names are those of the runtime's headers: FT_H_CHUNK_SIZE in C is
// format.HChunkSize here.
package format

//go:generate go run ../spec/gen
