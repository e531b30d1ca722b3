package elfio

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fentry-dev/fentry/internal/bigslice"
)

// EhEntry is a row of the search table of .eh_frame_hdr: the FDE at address FDE covers code from PC on.
type EhEntry struct{ PC, FDE uint64 }

// ehHdrEnc are the encodings every linker writes (LSB Core, ".eh_frame_hdr"): pointer to .eh_frame pc-relative,
// count absolute, table relative to the header, all 4 bytes.
var ehHdrEnc = [3]byte{encPCRel | encSdata4, encUdata4, encDataRel | encSdata4}

// MergeEhFrameHdr returns a .eh_frame_hdr for address at, with the entries of the image's own, if it has
// one, and extra, sorted by PC. An image whose header has no search table contributes the FDEs of its
// .eh_frame. An image without a header contributes nothing: its unwinder finds its FDEs some other way,
// such as __register_frame_info.
//
// It returns an error for a header in another encoding, and where an entry is farther than 2 GiB from at.
func MergeEhFrameHdr(f *File, at uint64, extra []EhEntry) ([]byte, error) {
	var old []EhEntry
	var ehFrame uint64
	if i := f.progOfType(elf.PT_GNU_EH_FRAME); i >= 0 && f.Progs[i].Filesz > 0 {
		h, err := f.ehFrameHdr(i)
		if err != nil {
			return nil, err
		}
		ehFrame = h.ehFrame
		if old, err = f.ehEntries(h); err != nil {
			return nil, err
		}
	} else if i := f.SectionIndex(".eh_frame"); i >= 0 {
		ehFrame = f.Sections[i].Addr
	}
	return f.ehHdr(at, ehFrame, old, extra)
}

// ehHdr builds a header from two lists of rows.
func (f *File) ehHdr(at, ehFrame uint64, old, extra []EhEntry) ([]byte, error) {
	all := slices.Clone(extra)
	if ehFrame == 0 {
		for _, e := range all {
			if ehFrame == 0 || e.FDE < ehFrame {
				ehFrame = e.FDE
			}
		}
	}
	byPC := func(a, b EhEntry) int { return cmp.Compare(a.PC, b.PC) }
	slices.SortStableFunc(all, byPC)
	if !slices.IsSortedFunc(old, byPC) {
		slices.SortStableFunc(old, byPC)
	}
	out := bigslice.Make[byte](12, 12+8*(len(old)+len(all)))
	out[0] = 1
	copy(out[1:], ehHdrEnc[:])
	o, little := f.c.order, f.c.order == byteOrder(binary.LittleEndian)
	ptr, err := disp32("the address of .eh_frame", ehFrame, at+4)
	if err != nil {
		return nil, err
	}
	o.PutUint32(out[4:], ptr)
	o.PutUint32(out[8:], uint32(len(old)+len(all)))
	for len(old)+len(all) > 0 {
		var e *EhEntry
		if len(all) == 0 || len(old) > 0 && old[0].PC <= all[0].PC {
			e, old = &old[0], old[1:]
		} else {
			e, all = &all[0], all[1:]
		}
		pc, err := disp32("a function", e.PC, at)
		if err != nil {
			return nil, err
		}
		fde, err := disp32("an FDE", e.FDE, at)
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

// EhFrameHdrSize is the number of bytes MergeEhFrameHdr will return for the given number of extra entries, so that
// room can be planned before addresses are known.
func EhFrameHdrSize(f *File, extra int) (uint64, error) {
	n := 0
	if i := f.progOfType(elf.PT_GNU_EH_FRAME); i >= 0 && f.Progs[i].Filesz > 0 {
		h, err := f.ehFrameHdr(i)
		if err != nil {
			return 0, err
		}
		old, err := f.ehEntries(h)
		if err != nil {
			return 0, err
		}
		n = len(old)
	}
	return 12 + 8*uint64(n+extra), nil
}

// ehEntries returns the rows of a header's table, from .eh_frame itself where there is no table.
func (f *File) ehEntries(h ehFrameHdr) ([]EhEntry, error) {
	if h.enc[1] == encOmit || h.enc[2] == encOmit {
		t, err := f.Frames()
		if err != nil {
			return nil, err
		}
		out := make([]EhEntry, 0, t.Len())
		for d := range t.All() {
			out = append(out, EhEntry{d.PC, d.Addr})
		}
		return out, nil
	}
	if h.enc != ehHdrEnc {
		return nil, formatErr(".eh_frame_hdr", h.off, "encodings % x, want % x", h.enc, ehHdrEnc)
	}
	out := make([]EhEntry, h.count)
	for i := range out {
		row := h.table[8*i:]
		out[i] = EhEntry{
			PC:  f.trim(h.addr + uint64(int64(int32(f.c.order.Uint32(row))))),
			FDE: f.trim(h.addr + uint64(int64(int32(f.c.order.Uint32(row[4:]))))),
		}
	}
	return out, nil
}

// trim reduces an address to the width of the class.
func (f *File) trim(v uint64) uint64 {
	if f.c.is64 {
		return v
	}
	return uint64(uint32(v))
}

// disp32 returns to-from as 32 bits.
func disp32(what string, to, from uint64) (uint32, error) {
	d := int64(to - from)
	if d != int64(int32(d)) {
		return 0, fmt.Errorf("%s at %#x is farther than 2 GiB from %#x", what, to, from)
	}
	return uint32(d), nil
}

// EhEntries returns the search table rows of unwind data in the file's byte order that is going to be at address
// addr, such as the .eh_frame of a linked object.
func (f *File) EhEntries(data []byte, addr uint64) ([]EhEntry, error) {
	fdes, err := f.FramesIn(data, addr)
	if err != nil {
		return nil, err
	}
	out := make([]EhEntry, len(fdes))
	for i, d := range fdes {
		out[i] = EhEntry{d.PC, d.Addr}
	}
	return out, nil
}
