package record

import (
	"encoding/binary"
	"slices"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/code"
)

// A lead is what may stand between a function's first instruction and its unwind entry.
type lead struct {
	fn    int    // index in functions
	lo    uint64 // first nop that can be the function's
	table bool   // a table lists lo
	start uint64 // where the function begins; 0: not known yet
}

// starts moves functions back to their first instruction that only .eh_frame knows of: the unwind entries of gcc 12
// begin behind the nops of -fpatchable-function-entry, and behind the landing pad in front of these. Without a landing
// pad it cannot be seen how many of the nops stand before the function. So it begins where something calls it, or has
// its address; one that nothing calls directly has as many as most of the others. Nops that no table lists may be
// padding, which linkers can jump to; they count only if they are called.
func (m arm64Machine) starts(im *image) error {
	table, err := im.addressTable(SourcePatchable)
	if err != nil {
		return err
	}
	leads, places := m.leads(im, table)
	if len(leads) == 0 {
		return nil
	}
	settle := func(addr uint64, called bool) {
		if k, ok := places[addr]; ok {
			if l := &leads[k]; (called || l.table) && (l.start == 0 || addr < l.start) {
				l.start = addr
			}
		}
	}
	if len(places) > 0 {
		for i := range im.code.Regions {
			r := &im.code.Regions[i]
			for at := 0; at+arm64.InstLen <= len(r.Data); at += arm64.InstLen {
				if w := binary.LittleEndian.Uint32(r.Data[at:]); w>>26&31 == 5 { // b, bl
					settle(r.Addr+uint64(at)+uint64(int64(int32(w<<6)>>4)), w>>31 == 1)
				}
			}
		}
		for i := range im.relocs {
			if r := &im.relocs[i]; r.Type == im.m.relocs.relative && !im.inSections(SourcePatchable, r.Off) {
				settle(uint64(r.Addend), false)
			}
		}
		settle(im.f.Header.Entry, false)
	}
	usual := usualBefore(leads)
	list := slices.Clone(im.funcs.list)
	for _, l := range leads {
		fn := &list[l.fn]
		if l.start == 0 && l.table {
			l.start = min(l.lo+usual, fn.Addr)
		}
		if l.start != 0 && l.start < fn.Addr {
			fn.Size += fn.Addr - l.start
			fn.Addr = l.start
		}
	}
	im.funcs.list = list
	return nil
}

// inSections reports whether an address is in a section of that name.
func (im *image) inSections(name string, addr uint64) bool {
	for i := range im.f.Sections {
		if s := &im.f.Sections[i]; s.Name == name && addr-s.Addr < s.Size {
			return true
		}
	}
	return false
}

// leads finds the functions in question, and the places at which those may begin whose start is not known.
func (m arm64Machine) leads(im *image, table []uint64) (leads []lead, places map[uint64]int) {
	places = make(map[uint64]int)
	for i := range im.funcs.list {
		fn := &im.funcs.list[i]
		r := im.code.Region(fn.Addr)
		if fn.Source != SourceEhFrame || r == nil || fn.Size == 0 || fn.Part {
			continue
		}
		floor := r.Addr
		if i > 0 {
			prev := &im.funcs.list[i-1]
			floor = max(floor, prev.Addr+prev.Size)
		}
		lo := fn.Addr
		for lo >= floor+arm64.InstLen && fn.Addr-lo < maxLead && m.Nops(im.code.Range(lo-arm64.InstLen, lo)) > 0 {
			lo -= arm64.InstLen
		}
		if lo >= floor+code.PadLen && im.hasPad(lo-code.PadLen) {
			leads = append(leads, lead{fn: i, start: lo - code.PadLen})
			continue
		}
		if lo == fn.Addr {
			continue
		}
		l := lead{fn: i, lo: lo}
		if k, _ := slices.BinarySearch(table, lo); k < len(table) && table[k] < fn.Addr {
			l.lo, l.table = table[k], true
		}
		for a := l.lo; a <= fn.Addr; a += arm64.InstLen {
			places[a] = len(leads)
		}
		leads = append(leads, l)
	}
	return leads, places
}

// usualBefore returns how many bytes of nops stand before most functions.
func usualBefore(leads []lead) uint64 {
	count := make(map[uint64]int)
	best := uint64(0)
	for _, l := range leads {
		if l.table && l.start != 0 {
			n := l.start - l.lo
			count[n]++
			if count[n] > count[best] || count[n] == count[best] && n < best {
				best = n
			}
		}
	}
	return best
}
