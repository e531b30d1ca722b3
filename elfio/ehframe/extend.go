package ehframe

import "github.com/fentry-dev/fentry/elfio/internal/raw"

// Rules for entries that stay where they are.
//
// Instructions that are added to a CIE apply to all of its entries, thousands of them, and none of these needs to
// change for it, not even the distance to the CIE, if the CIE grows at its place. Behind a CIE there is no room; but what
// is there is an entry or two, which can be elsewhere. So a CIE grows over the entries behind it, and only those are
// copied (move.go). A CIE behind which there is another one before there is room enough stays as it is, and its entries are
// all copied.
//
// Unwinders that have no search table walk through the entries one after another from an address that was put into the
// program when it was linked, which may be in the middle of what a CIE grows over. That is why this is only for images
// with a search table.

// An Extension says how instructions are added to the CIEs of a table in their place.
type Extension struct {
	Edits []Edit // sorted by address
	Leads []FDE  // code that entries which stay no longer describe (revise.go), by address
	stays []bool // by index of the entry
	leads []uint64
}

// Edit replaces bytes of unwind data in place. Old and New have the same length.
type Edit struct {
	Addr, Off uint64 // address, and offset in the file
	Old, New  []byte
}

// Stays reports whether entry i of the table is right where it is once the edits have been made. Others may have been
// overwritten, and have to be copied.
func (x *Extension) Stays(i int) bool { return x.stays[i] }

// Entry is the row of the search table for entry i of the table, which stays.
func (x *Extension) Entry(d *FDE, i int) Entry {
	if x.leads == nil {
		return Entry{d.PC, d.Addr}
	}
	return Entry{d.PC + x.leads[i], d.Addr}
}

// Extend adds what rule returns for a CIE to its instructions, as [Rules].CIE does in copies, where there is room. Only
// images whose unwinders use a search table may be changed so.
func (t *Table) Extend(rule func(*CIE) []byte) *Extension {
	a := &t.area
	x := &Extension{stays: make([]bool, len(t.entries))}
	index := make(map[uint64]int, len(t.cies))
	for i := range t.cies {
		index[t.cies[i].at] = i
	}
	right := make([]bool, len(t.cies)) // CIEs that are right where they are
	taken := make([]bool, len(t.entries))
	next := 0 // index of the first entry behind pos
	for pos := uint64(0); uint64(len(a.data))-pos >= 4; {
		e, err := a.entry(pos)
		switch {
		case err != nil || e.body == nil && !a.sized:
			pos = uint64(len(a.data))
		case e.body == nil:
			pos += 4
		case e.id != 0:
			next++
			pos = e.next
		default:
			i, used := index[pos]
			if used {
				extra := rule(t.cies[i].cie)
				if end, n, ok := t.room(e, next, extra); ok {
					right[i] = true
					x.grow(a, e, end, extra)
					for range n {
						taken[next] = true
						next++
					}
					e.next = end
				}
			}
			pos = e.next
		}
	}
	for i := range t.entries {
		x.stays[i] = right[t.entries[i].cie] && !taken[i]
	}
	return x
}

// room returns up to where a CIE must reach so that instructions can be added to it, and how many entries that takes.
// first is the index of the one behind it.
func (t *Table) room(cie entry, first int, extra []byte) (end uint64, n int, ok bool) {
	end = cie.next
	if cie.idPos != cie.pos+4 { // its length has 8 bytes
		return end, 0, len(extra) == 0
	}
	for end < cie.next+uint64(len(extra)) {
		k := first + n
		if k >= len(t.entries) || t.entries[k].pos != end {
			return 0, 0, false
		}
		e, err := t.area.entry(end)
		if err != nil {
			return 0, 0, false
		}
		end = e.next
		n++
	}
	return end, n, true
}

// grow adds the edit of a CIE that is to reach up to end. What is not needed is filled with DW_CFA_nop.
func (x *Extension) grow(a *area, cie entry, end uint64, extra []byte) {
	if len(extra) == 0 {
		return
	}
	old, ok := raw.Slice(a.data, cie.pos, end-cie.pos)
	if !ok {
		return
	}
	b := make([]byte, len(old))
	n := copy(b, old[:cie.next-cie.pos])
	copy(b[n:], extra)
	a.c.Order.PutUint32(b, uint32(len(b)-4))
	x.Edits = append(x.Edits, Edit{Addr: a.addr + cie.pos, Off: a.off + cie.pos, Old: old, New: b})
}

// Addr returns the address of the first entry.
func (t *Table) Addr() uint64 { return t.area.addr }
