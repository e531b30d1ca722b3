package format

import (
	"encoding/binary"
	"hash/crc32"
)

// An Identity tells traces apart: COUNTER, MONOTONIC and REALTIME of a header page.
type Identity [24]byte

// IdentityOf returns the identity that a header page has.
func IdentityOf(header []byte) (id Identity) {
	copy(id[:], header[HCounter:HCounter+len(id)])
	return id
}

// castagnoli is the table of CRC32C, made when it is first used: making it takes longer than starting some commands.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func (id *Identity) crc(entry []byte) uint32 {
	return crc32.Update(crc32.Checksum(id[:], castagnoli()), castagnoli(), entry[:XCrc])
}

// AppendIndex appends to b the entry of the file chunks for the chunk whose header
// begins head, at the given offset of events.
func AppendIndex(b []byte, id Identity, head []byte, offset int64) []byte {
	var e [ChunkHeader]byte
	copy(e[:], head)
	binary.LittleEndian.PutUint64(e[XOffset:], uint64(offset))
	binary.LittleEndian.PutUint32(e[XCrc:], id.crc(e[:]))
	return append(b, e[:]...)
}

// IndexOffset returns the offset that an entry of the file chunks has. ok is false
// when the entry is damaged, or another trace's.
func IndexOffset(id Identity, entry []byte) (offset uint64, ok bool) {
	return binary.LittleEndian.Uint64(entry[XOffset:]), binary.LittleEndian.Uint32(entry[XCrc:]) == id.crc(entry)
}
