package format

import "encoding/binary"

// A Record is the header of a record: what its id says.
type Record struct {
	Type  uint8
	Words int // of payload
	Open  bool
	Exit  bool // bit 63, which has a meaning for some types
}

// ParseRecord takes the id of a word apart. ok is false when it is no record's.
func ParseRecord(id uint32) (r Record, ok bool) {
	return Record{
		Type:  uint8(id >> RecordTypeShift & RecordTypeMask),
		Words: int(id & RecordWords),
		Open:  id&RecordOpen != 0,
		Exit:  id&IDExit != 0,
	}, id&RecordMask == RecordBase
}

// ID is the inverse of ParseRecord.
func (r Record) ID() uint32 {
	id := RecordBase | uint32(r.Type)<<RecordTypeShift | uint32(r.Words)
	if r.Open {
		id |= RecordOpen
	}
	if r.Exit {
		id |= IDExit
	}
	return id
}

// Contents returns the part of the words of an unsealed chunk that has something in
// it: up to the last one that is not zero, or to the end of the last record.
func Contents(words []byte) []byte {
	n := len(words) &^ 7
	for n > 0 && binary.LittleEndian.Uint64(words[n-8:]) == 0 {
		n -= 8
	}
	// Only from the beginning can be told what is a record's payload.
	at := 0
	for at < n {
		r, ok := ParseRecord(uint32(binary.LittleEndian.Uint64(words[at:]) >> 32))
		at += 8
		if ok {
			at += 8 * r.Words
		}
	}
	return words[:min(max(at, n), len(words)&^7)]
}
