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

// CRC returns the CRC32C of what crc is that of, 0 at first, and of b behind it. The table is made when it is first
// used: making it takes longer than starting some commands.
func CRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), b) }

func (id *Identity) crc(entry []byte) uint32 { return CRC(CRC(0, id[:]), entry[:XCrc]) }

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
