package ehframe

import (
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Unwind information of a running process.
//
// A process's tables are not always those of its files: what has been added to a program at its start has entries of
// its own. Unwinders in the process find all of them through the search table, and so does Search, which reads no more
// than it needs: some words of the table, and two entries.

// Memory returns the n bytes at an address of a 64-bit little-endian process.
type Memory func(addr uint64, n int) ([]byte, error)

// maxEntry bounds an entry's bytes; the largest in real programs have some kilobytes.
const maxEntry = 1 << 20

// Search returns the entry for an address by the search table at address header, as PT_GNU_EH_FRAME says; false: it has
// none. Errors are memory's, or about a table in another form than the one all linkers use.
func Search(mem Memory, header, pc uint64) (FDE, bool, error) {
	h, err := mem(header, 12)
	if err != nil {
		return FDE{}, false, err
	}
	le := binary.LittleEndian
	if h[0] != 1 || [3]byte(h[1:4]) != headerEnc {
		return FDE{}, false, fmt.Errorf("search table at %#x: encodings % x", header, h[:4])
	}
	at := func(i uint32) (pc, fde uint64, err error) {
		b, err := mem(header+12+8*uint64(i), 8)
		if err != nil {
			return 0, 0, err
		}
		rel := func(b []byte) uint64 { return header + uint64(int64(int32(le.Uint32(b)))) }
		return rel(b), rel(b[4:]), nil
	}
	lo, hi := uint32(0), le.Uint32(h[8:])
	for lo < hi {
		mid := lo + (hi-lo)/2
		start, _, err := at(mid)
		if err != nil {
			return FDE{}, false, err
		}
		if start <= pc {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return FDE{}, false, nil
	}
	_, fde, err := at(lo - 1)
	if err != nil {
		return FDE{}, false, err
	}
	d, err := entryAt(mem, fde)
	return d, err == nil && pc-d.PC < d.Size, err
}

// entryAt reads an FDE and its CIE.
func entryAt(mem Memory, addr uint64) (FDE, error) {
	a, err := areaAt(mem, addr)
	if err != nil {
		return FDE{}, err
	}
	e, err := a.entry(0)
	if err != nil {
		return FDE{}, err
	}
	if e.body == nil || e.id == 0 {
		return FDE{}, elfio.FormatErrorf("entry of "+a.what, addr, "the search table refers to it, but it is no FDE")
	}
	ca, err := areaAt(mem, addr+e.idPos-uint64(e.id))
	if err != nil {
		return FDE{}, err
	}
	cie, err := ca.cie(0)
	if err != nil {
		return FDE{}, err
	}
	return a.fde(e, cie)
}

// areaAt reads the entry at an address. Its offsets are addresses.
func areaAt(mem Memory, addr uint64) (*area, error) {
	b, err := mem(addr, 4)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxEntry {
		return nil, elfio.FormatErrorf("entry of unwind data", addr, "%#x bytes", n)
	}
	if b, err = mem(addr, 4+int(n)); err != nil {
		return nil, err
	}
	return &area{c: raw.Codec{Order: binary.LittleEndian, Is64: true}, what: "unwind data", data: b, off: addr, addr: addr,
		sized: true}, nil
}
