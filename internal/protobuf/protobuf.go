// Package protobuf appends fields of messages of protocol buffers, as much of their wire format as two formats of traces
// take. Nothing is done when a program that imports it starts, unlike by the packages of google.golang.org/protobuf,
// which the tests use.
package protobuf

import (
	"encoding/binary"
	"strings"
)

// Wire types, the low three bits of a field's tag.
const (
	varint = 0
	length = 2
)

// AppendVarint appends a number without a tag, as in packed fields.
func AppendVarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendNumber appends a field that is a number.
func AppendNumber(b []byte, field int, v uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3|varint), v)
}

// AppendHead appends the tag and the length of a message of n bytes, which follows.
func AppendHead(b []byte, field, n int) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field)<<3|length), uint64(n))
}

// AppendMessage appends a field that is a message, or a packed field.
func AppendMessage(b []byte, field int, m []byte) []byte {
	return append(AppendHead(b, field, len(m)), m...)
}

// AppendString appends a field that is a string, made valid UTF-8.
func AppendString(b []byte, field int, s string) []byte {
	s = strings.ToValidUTF8(s, "\ufffd")
	return append(AppendHead(b, field, len(s)), s...)
}
