// Package spec is the one table of the numbers that programs, recorders and readers
// agree on: the trace format, and the configuration that a patcher leaves for the
// runtime.
//
// Made from it by internal/spec/gen ("go generate ./internal/format") are package
// internal/format, which everything written in Go uses; stub/src/format.h and
// stub/src/config.h, which the runtime's C and assembly include; and docs/format.md,
// the page a third party writes a reader from. Tests here compare all of them with
// the table, so that what the runtime writes, what the readers expect and what the
// page says cannot drift apart, and see to it that nothing is in the table that no
// one reads or writes.
//
// A name is the same everywhere: H_CHUNK_SIZE here is FT_H_CHUNK_SIZE in C and
// format.HChunkSize in Go.
package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// A Field is one field of a fixed-layout structure, little-endian.
type Field struct {
	Name string // in upper case with underscores
	Off  int    // byte offset in the structure
	Type string // "u8", "u16", "u32", "u64", "i64", "char[n]" or "u8[n]"
	Unit string // unit of the value, "" when it is a plain number
	Doc  string // what it holds, one or two sentences
}

// Size returns the size of the field in bytes.
func (f *Field) Size() int {
	elem, n := f.elem()
	return n * map[string]int{"char": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}[elem]
}

// elem splits the type of an array; n is 1 for all others.
func (f *Field) elem() (typ string, n int) {
	typ, count, ok := strings.Cut(strings.TrimSuffix(f.Type, "]"), "[")
	if !ok {
		return f.Type, 1
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(fmt.Sprintf("spec: field %s of type %q", f.Name, f.Type))
	}
	return typ, n
}

// Align returns what the offset of the field is a multiple of.
func (f *Field) Align() int {
	_, n := f.elem()
	return f.Size() / n
}

// A Value is a named number: a kind, a state, a flag.
type Value struct {
	Name string
	Val  uint64
	Doc  string
}

// A Struct is a structure of memory that C shares with Go.
type Struct struct {
	Name   string // of the C structure
	Prefix string // of constants: CONFIG
	Size   int    // bytes
	Doc    string
	Fields []Field
}
