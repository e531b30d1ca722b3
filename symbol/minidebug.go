package symbol

// Fedora and its kin strip programs, but leave the names of functions that .dynsym lacks in the section .gnu_debugdata
// ("MiniDebugInfo"): an ELF file with little more than a .symtab, as an xz stream. It is used where neither the image
// nor a separate debug file has a .symtab.
//
// Of the xz format only the container is read here, as far as such streams use it (The .xz File Format 1.2): blocks with
// LZMA2 and no other filter. The library's own reader of containers takes as much memory as a stream asks for, up to
// 4 GiB, and makes a table of 32 KiB at every start of a program that imports it.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/fentry-dev/fentry/elfio"
)

// miniExpansion is how many times larger than its stream the file can be: symbol tables shrink to a fifth.
const miniExpansion = 64

// mostBlocks bounds how often a dictionary is made. xz makes one block of 24 MiB.
const mostBlocks = 16

const miniSection = ".gnu_debugdata"

// miniSymbols returns the symbols in .gnu_debugdata, nil if the image has none.
func miniSymbols(f *elfio.File) ([]elfio.Symbol, error) {
	i := f.SectionIndex(miniSection)
	if i < 0 {
		return nil, nil
	}
	b, err := f.SectionData(i)
	if err != nil {
		return nil, err
	}
	syms, err := expandSymbols(b)
	if err != nil {
		return nil, fmt.Errorf("section %d (%s) at offset %#x: %w", i, miniSection, f.Sections[i].Off, err)
	}
	return syms, nil
}

func expandSymbols(b []byte) ([]elfio.Symbol, error) {
	out, err := unxz(b, len(b)*miniExpansion+4096)
	if err != nil {
		return nil, err
	}
	f, err := elfio.Parse(out)
	if err != nil {
		return nil, err
	}
	return f.Symbols()
}

const (
	xzHeader   = 12 // of a stream: magic, flags, CRC-32 of the flags
	xzMagic    = "\xfd7zXZ\x00"
	xzLZMA2    = 0x21
	xzMaxBits  = 40 // of LZMA2's size of the dictionary
	xzCRC32    = 1  // kinds of checks
	xzCRC64    = 4
	xzReserved = 0x3f // other flags and number of filters: 0 with one filter
)

// xzCheckSize is the size of a block's check, by its kind.
var xzCheckSize = [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}

var errShort = errors.New("xz: the stream is too short")

// unxz expands a stream to at most limit bytes.
func unxz(b []byte, limit int) ([]byte, error) {
	if len(b) < xzHeader {
		return nil, errShort
	}
	if string(b[:len(xzMagic)]) != xzMagic || b[6] != 0 || b[7] > 15 || crc32.ChecksumIEEE(b[6:8]) != binary.LittleEndian.Uint32(b[8:]) {
		return nil, errors.New("xz: the header is not that of a stream")
	}
	kind := b[7]
	var out []byte
	at := xzHeader
	for range mostBlocks {
		if at >= len(b) {
			return nil, errShort
		}
		if b[at] == 0 {
			return out, nil // the index follows
		}
		size := 4 * (int(b[at]) + 1)
		if size > len(b)-at {
			return nil, errShort
		}
		dict, err := xzBlock(b[at : at+size])
		if err != nil {
			return nil, err
		}
		at += size
		r := bytes.NewReader(b[at:])
		// No match reaches back further than what there can be.
		z, err := lzma.Reader2Config{DictCap: max(min(dict, limit), lzma.MinDictCap)}.NewReader2(r)
		if err != nil {
			return nil, err
		}
		block, err := io.ReadAll(io.LimitReader(z, int64(limit-len(out))+1))
		if err != nil {
			return nil, err
		}
		if len(block) > limit-len(out) {
			return nil, fmt.Errorf("xz: %d bytes hold more than %d", len(b), limit)
		}
		at = len(b) - r.Len()
		at += -(at - xzHeader) & 3
		if at+xzCheckSize[kind] > len(b) {
			return nil, errShort
		}
		if !xzChecks(kind, block, b[at:]) {
			return nil, errors.New("xz: the checksum of a block is wrong")
		}
		at += xzCheckSize[kind]
		out = append(out, block...)
	}
	return nil, fmt.Errorf("xz: more than %d blocks", mostBlocks)
}

// xzBlock reads a block's header and returns the size of its dictionary.
func xzBlock(h []byte) (dict int, err error) {
	end := len(h) - 4
	if crc32.ChecksumIEEE(h[:end]) != binary.LittleEndian.Uint32(h[end:]) {
		return 0, errors.New("xz: the header of a block is damaged")
	}
	rest := h[2:end]
	for flag := byte(0x40); flag != 0; flag <<= 1 { // compressed and uncompressed size
		if h[1]&flag == 0 {
			continue
		}
		_, n := binary.Uvarint(rest)
		if n <= 0 {
			return 0, errShort
		}
		rest = rest[n:]
	}
	// One filter with one byte of properties.
	if h[1]&xzReserved != 0 || len(rest) < 3 || rest[0] != xzLZMA2 || rest[1] != 1 || rest[2] > xzMaxBits {
		return 0, errors.New("xz: a block has filters other than LZMA2")
	}
	if bits := rest[2]; bits < xzMaxBits {
		return (2 | int(bits&1)) << (bits/2 + 11), nil
	}
	return 1<<32 - 1, nil
}

// xzChecks compares a block with its checksum, if that is of a kind that is known here.
func xzChecks(kind byte, block, sum []byte) bool {
	switch kind {
	case xzCRC32:
		return crc32.ChecksumIEEE(block) == binary.LittleEndian.Uint32(sum)
	case xzCRC64:
		return crc64.Checksum(block, crc64.MakeTable(crc64.ECMA)) == binary.LittleEndian.Uint64(sum)
	}
	return true
}
