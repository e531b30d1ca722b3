package ehframe

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
	"github.com/fentry-dev/fentry/internal/bigslice"
)

// The search table, .eh_frame_hdr.
//
// Unwinders find an entry by a binary search in a sorted table of addresses; where an image has one, entries that are
// not in it do not exist. So entries that are added need a new table, merged from the old one, which linkers have
// sorted, and the few that are new.

// Entry is an entry of the search table of .eh_frame_hdr: the FDE at address FDE covers code from PC on.
type Entry struct{ PC, FDE uint64 }

// headerEnc are the encodings every linker writes (LSB Core, ".eh_frame_hdr"): pointer to .eh_frame pc-relative,
// count absolute, table relative to the header, all 4 bytes.
var headerEnc = [3]byte{encPCRel | encSdata4, encUdata4, encDataRel | encSdata4}

// MergeHeader returns a .eh_frame_hdr for address at, with the entries of the image's own, if it has one, and extra,
// sorted by PC. An image whose header has no search table contributes the FDEs of its .eh_frame. An image without a
// header contributes nothing: its unwinder finds FDEs in some other way, such as __register_frame_info.
//
// It returns an error for a header in another encoding, and if an entry is farther than 2 GiB from at.
func MergeHeader(f *elfio.File, at uint64, extra []Entry) ([]byte, error) {
	var old []Entry
	var ehFrame uint64
	if i := f.ProgIndex(elf.PT_GNU_EH_FRAME); i >= 0 && f.Progs[i].Filesz > 0 {
		h, err := readHeader(f, i)
		if err != nil {
			return nil, err
		}
		ehFrame = h.ehFrame
		if old, err = h.entries(f); err != nil {
			return nil, err
		}
	} else if i := f.SectionIndex(".eh_frame"); i >= 0 {
		ehFrame = f.Sections[i].Addr
	}
	return NewHeader(f, at, ehFrame, old, extra)
}

// NewHeader returns a .eh_frame_hdr for address at with exactly the given entries, for unwind data at address ehFrame
// (0: at the first entry of extra). Entries are merged and sorted by PC; moved is sorted in place. Use it instead of
// [MergeHeader] when the image's own unwind data has been moved.
func NewHeader(f *elfio.File, at, ehFrame uint64, moved, extra []Entry) ([]byte, error) {
	all := slices.Clone(extra)
	if ehFrame == 0 {
		for _, e := range all {
			if ehFrame == 0 || e.FDE < ehFrame {
				ehFrame = e.FDE
			}
		}
	}
	byPC := func(a, b Entry) int { return cmp.Compare(a.PC, b.PC) }
	slices.SortStableFunc(all, byPC)
	if !slices.IsSortedFunc(moved, byPC) {
		slices.SortStableFunc(moved, byPC)
	}
	out := bigslice.Make[byte](12, 12+8*(len(moved)+len(all)))
	out[0] = 1
	copy(out[1:], headerEnc[:])
	c := raw.CodecOf(f.Raw())
	o, little := c.Order, c.Order == raw.ByteOrder(binary.LittleEndian)
	ptr, err := raw.Disp32("the address of .eh_frame", ehFrame, at+4)
	if err != nil {
		return nil, err
	}
	o.PutUint32(out[4:], ptr)
	o.PutUint32(out[8:], uint32(len(moved)+len(all)))
	for len(moved)+len(all) > 0 {
		var e *Entry
		if len(all) == 0 || len(moved) > 0 && moved[0].PC <= all[0].PC {
			e, moved = &moved[0], moved[1:]
		} else {
			e, all = &all[0], all[1:]
		}
		pc, err := raw.Disp32("a function", e.PC, at)
		if err != nil {
			return nil, err
		}
		fde, err := raw.Disp32("an FDE", e.FDE, at)
		if err != nil {
			return nil, err
		}
		n := len(out)
		out = out[:n+8]
		if little {
			binary.LittleEndian.PutUint64(out[n:], uint64(pc)|uint64(fde)<<32)
		} else {
			o.PutUint32(out[n:], pc)
			o.PutUint32(out[n+4:], fde)
		}
	}
	return out, nil
}

// entries returns the entries of a header's table, from .eh_frame itself where there is no table.
func (h *header) entries(f *elfio.File) ([]Entry, error) {
	if h.enc[1] == encOmit || h.enc[2] == encOmit {
		t, err := Read(f)
		if err != nil {
			return nil, err
		}
		return t.Entries(), nil
	}
	if h.enc != headerEnc {
		return nil, elfio.FormatErrorf(".eh_frame_hdr", h.off, "encodings % x, want % x", h.enc, headerEnc)
	}
	c := raw.CodecOf(f.Raw())
	address := func(b []byte) uint64 {
		v := h.addr + uint64(int64(int32(c.Order.Uint32(b))))
		if !c.Is64 {
			v = uint64(uint32(v))
		}
		return v
	}
	out := make([]Entry, h.count)
	for i := range out {
		row := h.table[8*i:]
		out[i] = Entry{PC: address(row), FDE: address(row[4:])}
	}
	return out, nil
}

// header is a decoded .eh_frame_hdr.
type header struct {
	off, addr uint64
	enc       [3]byte // eh_frame_ptr, fde_count, table
	ehFrame   uint64
	count     uint64
	none      bool   // there is no .eh_frame, and ehFrame is 0
	table     []byte // 8 bytes an entry; only for the table encoding every linker writes
}

// header decodes the header that program header i points to.
func readHeader(f *elfio.File, i int) (h header, err error) {
	p := f.Progs[i]
	b, err := f.ProgData(i)
	if err != nil {
		return h, err
	}
	bad := func(format string, args ...any) (header, error) {
		return h, elfio.FormatErrorf(f.ProgLabel(i), p.Off, format, args...)
	}
	if len(b) < 4 || b[0] != 1 {
		return bad("no version 1 .eh_frame_hdr of at least 4 bytes")
	}
	h.off, h.addr = p.Off, p.Vaddr
	copy(h.enc[:], b[1:4])
	d := pointerReader{c: raw.CodecOf(f.Raw()), b: b[4:], addr: p.Vaddr + 4}
	h.ehFrame = d.pointer(h.enc[0])
	if h.enc[1] == encOmit || h.enc[2] == encOmit {
		if d.bad {
			return bad("ends too early or uses pointer encoding %#x", h.enc[0])
		}
		return h, nil // no search table
	}
	h.count = d.pointer(h.enc[1])
	if d.bad {
		return bad("ends too early or uses pointer encodings %#x and %#x", h.enc[0], h.enc[1])
	}
	if h.count == 0 && leadsNowhere(f, h.ehFrame) {
		h.none, h.ehFrame = true, 0
	}
	if h.enc[2] != encDataRel|encSdata4 {
		return h, nil
	}
	if h.count > uint64(len(d.b))/8 {
		return bad("%d entries do not fit its %d bytes", h.count, len(b))
	}
	h.table = d.b[:h.count*8]
	return h, nil
}

// leadsNowhere reports whether no .eh_frame can be at an address. Where an image has none, mold writes an empty search table
// that leads to address 0 or to the ELF header.
func leadsNowhere(f *elfio.File, addr uint64) bool {
	off, ok := f.Offset(addr)
	return !ok || off == 0
}
