package ehframe

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// ErrNoHeader is returned for an image without a search table.
var ErrNoHeader = errors.New("no search table of unwind information")

// Redirect returns how the search table of an image that is in memory is changed to lead to the entries of another one,
// hdr, a result of [NewHeader] for address hdrAddr: the address of the image's table, its bytes and the new ones, of the
// same length. Entries for code that hdr does not have stay as they are. The error is ErrNoHeader if the image has no such
// table.
func Redirect(f *elfio.File, hdr []byte, hdrAddr uint64) (addr uint64, before, after []byte, err error) {
	i := f.ProgIndex(elf.PT_GNU_EH_FRAME)
	if i < 0 || f.Progs[i].Filesz == 0 {
		return 0, nil, nil, ErrNoHeader
	}
	h, err := readHeader(f, i)
	if err != nil {
		return 0, nil, nil, err
	}
	if h.enc != headerEnc || h.table == nil {
		return 0, nil, nil, ErrNoHeader
	}
	o := raw.CodecOf(f.Raw()).Order
	const head, row = 12, 8
	if len(hdr) < head || len(hdr) != head+row*int(o.Uint32(hdr[8:])) {
		return 0, nil, nil, fmt.Errorf("search table of %d bytes", len(hdr))
	}
	before, after = bytes.Clone(h.table), bytes.Clone(h.table)
	at := func(b []byte, base uint64) uint64 { return base + uint64(int64(int32(o.Uint32(b)))) }
	for rows := hdr[head:]; len(h.table) > 0; h.table = h.table[row:] {
		pc := at(h.table, h.addr)
		for len(rows) > 0 && at(rows, hdrAddr) < pc {
			rows = rows[row:]
		}
		if len(rows) == 0 {
			break
		}
		if at(rows, hdrAddr) != pc {
			continue
		}
		d, err := raw.Disp32("an FDE", at(rows[4:], hdrAddr), h.addr)
		if err != nil {
			return 0, nil, nil, err
		}
		o.PutUint32(after[len(after)-len(h.table)+4:], d)
	}
	return h.addr + head, before, after, nil
}

// LeadToCIE returns the edit of the file by which an FDE uses another CIE, at an address, as a copy of the FDE in out at the
// address entry does; out.EhFrame begins at address base. What they say else must be the same. The edit is of four bytes that
// are aligned as the FDE is, so it can be made while somebody reads. It returns an error for lengths that no compiler writes, and
// for a CIE out of reach.
func (out *Moved) LeadToCIE(f *elfio.File, d *FDE, entry, base uint64) (elfio.RawEdit, error) {
	o := raw.CodecOf(f.Raw()).Order
	const cie = 4 // where in an FDE the distance to its CIE is
	b, ok := raw.Slice(f.Raw(), d.Off, 2*cie)
	copied, has := raw.Slice(out.EhFrame, entry-base, 2*cie)
	if !ok || !has || o.Uint32(b) == 0xffffffff {
		return elfio.RawEdit{}, elfio.FormatErrorf("FDE of .eh_frame", d.Off, "its length")
	}
	to := entry + cie - uint64(o.Uint32(copied[cie:]))
	if dist := int64(d.Addr + cie - to); dist != int64(int32(dist)) {
		return elfio.RawEdit{}, elfio.FormatErrorf("FDE of .eh_frame", d.Off, "its CIE would be %#x away", dist)
	}
	return elfio.RawEdit{Off: d.Off + cie, New: o.AppendUint32(nil, uint32(d.Addr+cie-to))}, nil
}
