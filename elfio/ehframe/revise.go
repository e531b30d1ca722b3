package ehframe

import (
	"cmp"
	"slices"

	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Entries that stay and have another CIE.
//
// Where one rule in a CIE is not right for all of its entries, there can be several CIEs, each made of the same one with
// a rule of its own, and an entry is changed by the four bytes that say which it has. CIEs must stand before their
// entries, because not all readers can follow a distance that goes forward: so they take the place of some of the first
// entries, and only those are copied (move.go). Code at the beginning of a function that needs another rule than the
// rest gets an entry of its own among the copies, 24 bytes and 8 of the search table. The entry of the rest begins later
// then: what its instructions say up to there holds at once, because what goes on to later addresses has become nops. Where
// the entry has room for it, the rule of its CIE can tell such code from the rest instead, by a mark (mark.go).
//
// Only images whose unwinders use a search table may be changed so, as in extend.go.

// A Reviser knows the rules.
type Reviser interface {
	// Revise says which variant of its CIE an entry with these rows can have in place of the CIE; false: none.
	Revise(d *FDE, rows []Row) (Revision, bool)
	// Variant returns what a variant has in place of its CIE's return address column, and the call frame instructions
	// that are added; false: entries of the CIE have no variants.
	Variant(c *CIE, key int64) (ret uint64, extra []byte, ok bool)
	// Lead is the key for code that is followed by other code of its function; see Revision.
	Lead() int64
}

// Revision is the variant that an entry has.
type Revision struct {
	Key  int64  // entries of one CIE with the same key share the variant
	Lead uint64 // how many bytes at the beginning of the code have that of Reviser.Lead, up to where a row begins
	Mark bool   // the variant is right for these bytes, too, where their rows are marked

	instructions []byte // what the entry's have become with a mark; nil: they have none
}

// apart reports whether an entry of its own describes the first bytes of the code.
func (r *Revision) apart() bool { return r.Lead > 0 && r.instructions == nil }

// Variants makes variants of CIEs, one of each.
type Variants struct {
	by   Reviser
	made map[variantKey]*CIE
	rows []Row
}

type variantKey struct {
	of  *CIE
	key int64
}

// NewVariants returns the variants of a reviser.
func NewVariants(by Reviser) *Variants { return &Variants{by: by, made: map[variantKey]*CIE{}} }

// Of returns a variant of a CIE, nil if it has none.
func (v *Variants) Of(c *CIE, key int64) *CIE {
	k := variantKey{c, key}
	if out, ok := v.made[k]; ok {
		return out
	}
	var out *CIE
	if ret, extra, ok := v.by.Variant(c, key); ok {
		b := *c
		b.RetReg, b.Instructions = ret, slices.Concat(c.Instructions, extra)
		out = &b
	}
	v.made[k] = out
	return out
}

// Leading returns the variant of a CIE for code that is followed by other code of its function, nil if there is none.
func (v *Variants) Leading(c *CIE) *CIE {
	if v == nil {
		return nil
	}
	return v.Of(c, v.by.Lead())
}

// revise says which variant an entry has; false: none.
func (v *Variants) revise(d *FDE) (Revision, bool) {
	if v.Leading(d.CIE) == nil {
		return Revision{}, false
	}
	var err error
	if v.rows, err = d.AppendRows(v.rows[:0]); err != nil {
		return Revision{}, false
	}
	r, ok := v.by.Revise(d, v.rows)
	if r.Mark && r.Lead > 0 {
		r.instructions, _ = d.mark(r.Lead)
	}
	return r, ok && v.Of(d.CIE, r.Key) != nil && (!r.apart() || d.LSDA == 0 && r.Lead < d.Size)
}

// Split returns what stands for an entry, in copies: one entry or two, with variants of its CIE; none if it has none.
func (v *Variants) Split(d *FDE) []FDE {
	r, ok := v.revise(d)
	if !ok {
		return nil
	}
	rest := *d
	rest.CIE = v.Of(d.CIE, r.Key)
	if r.instructions != nil {
		rest.Instructions = r.instructions
	}
	if !r.apart() {
		return []FDE{rest}
	}
	rest.PC, rest.Size = d.PC+r.Lead, d.Size-r.Lead
	rest.Instructions = slices.Clone(d.Instructions)
	silence(rest.Instructions, d.CIE, r.Lead)
	return []FDE{v.lead(d, r.Lead), rest}
}

// lead is the entry of the first n bytes of an entry's code.
func (v *Variants) lead(d *FDE, n uint64) FDE {
	out := FDE{PC: d.PC, Size: n, CIE: v.Leading(d.CIE), Instructions: d.Instructions}
	at := uint64(0)
	for code := d.Instructions; len(code) > 0; {
		in, rest, ok := cut(code)
		delta, _ := d.CIE.advance(in)
		if at += delta; !ok || at >= n {
			out.Instructions = d.Instructions[:len(d.Instructions)-len(code)]
			break
		}
		code = rest
	}
	return out
}

// silence makes nops of the instructions that go on by the first n bytes of code.
func silence(code []byte, c *CIE, n uint64) {
	for at := uint64(0); len(code) > 0; {
		in, rest, ok := cut(code)
		if !ok {
			return
		}
		if delta, moves := c.advance(in); moves {
			if at += delta; at > n {
				return
			}
			clear(in.raw)
		}
		code = rest
	}
}

// Revise gives the entries of the table variants of their CIEs, in their place. Entries for which keep says so are not
// changed, nor are those of CIEs without variants.
func (t *Table) Revise(v *Variants, keep func(pc uint64) bool) *Extension {
	x := &Extension{stays: make([]bool, len(t.entries)), leads: make([]uint64, len(t.entries))}
	plans := make([]Revision, len(t.entries))
	can := make([]bool, len(t.entries))
	count := map[classKey]int{}
	for i := range t.entries {
		d := t.At(i)
		if keep(d.PC) || v.Leading(d.CIE) == nil {
			x.stays[i] = true // it is right as it is
			continue
		}
		if plans[i], can[i] = v.revise(&d); can[i] {
			count[classKey{t.entries[i].cie, plans[i].Key}]++
		}
	}
	at, first, behind := t.placeVariants(x, v, count)
	for i := range t.entries {
		switch {
		case i >= first && i < behind:
			x.stays[i] = false // overwritten
		case x.stays[i] || !can[i] || i < behind:
		default:
			cie, ok := at[classKey{t.entries[i].cie, plans[i].Key}]
			if !ok {
				continue
			}
			if e, ok := t.refer(i, cie, &plans[i]); ok {
				x.stays[i] = true
				x.Edits = append(x.Edits, e)
				if plans[i].apart() {
					d := t.At(i)
					x.leads[i] = plans[i].Lead
					x.Leads = append(x.Leads, v.lead(&d, plans[i].Lead))
				}
			}
		}
	}
	return x
}

// classKey is a variant in a table: the index of the CIE, and the key.
type classKey struct {
	cie int
	key int64
}

// fewest is how many entries a variant must have to be worth its bytes.
const fewest = 3

// placeVariants puts variants in the place of some of the first entries, and returns where each is in the table, and
// which entries that has cost.
func (t *Table) placeVariants(x *Extension, v *Variants, count map[classKey]int) (at map[classKey]uint64, first, behind int) {
	var classes []classKey
	for k, n := range count {
		if n >= fewest {
			classes = append(classes, k)
		}
	}
	slices.SortFunc(classes, func(a, b classKey) int { return cmp.Or(cmp.Compare(a.cie, b.cie), cmp.Compare(a.key, b.key)) })
	m := &mover{c: t.area.c, out: &Moved{}, cies: map[*CIE]*movedCIEs{}}
	encode := func() bool {
		m.out.EhFrame, m.out.DebugFrame = m.out.EhFrame[:0], m.out.DebugFrame[:0]
		for _, k := range classes {
			if _, err := m.cie(v.Of(t.cies[k.cie].cie, k.key), nil); err != nil {
				return false
			}
		}
		return true
	}
	if len(classes) == 0 || !encode() {
		return nil, 0, 0
	}
	first, behind, end := t.contiguous(uint64(len(m.out.EhFrame)))
	if first == behind {
		return nil, 0, 0
	}
	start := t.entries[first].pos
	m.at = t.area.addr + start
	encode()
	old, ok := raw.Slice(t.area.data, start, end-start)
	if !ok {
		return nil, 0, 0
	}
	b := make([]byte, len(old))
	copy(b, m.out.EhFrame)
	at = map[classKey]uint64{}
	pos := uint64(0)
	for i, k := range classes {
		at[k] = start + pos
		n := uint64(t.area.c.Order.Uint32(b[pos:])) + 4
		if i == len(classes)-1 { // what is left is filled with DW_CFA_nop
			t.area.c.Order.PutUint32(b[pos:], uint32(uint64(len(b))-pos-4))
		}
		pos += n
	}
	x.Edits = append(x.Edits, Edit{Addr: t.area.addr + start, Off: t.area.off + start, Old: old, New: b})
	return at, first, behind
}

// contiguous finds the first entries that lie one behind another, without a CIE between or in them, and have n bytes
// together: from first up to behind, which ends at end.
func (t *Table) contiguous(n uint64) (first, behind int, end uint64) {
	for i := range t.entries {
		e, err := t.area.entry(t.entries[i].pos)
		if err != nil {
			return 0, 0, 0
		}
		if t.entries[i].pos != end {
			first = i
		}
		if end = e.next; end-t.entries[first].pos < n {
			continue
		}
		if slices.ContainsFunc(t.cies, func(u usualFDEs) bool { return u.at >= t.entries[first].pos && u.at < end }) {
			return 0, 0, 0
		}
		return first, i + 1, end
	}
	return 0, 0, 0
}

// refer is the edit that makes an entry one of the CIE at a place before it, without the first bytes of its code if they
// have an entry of their own.
func (t *Table) refer(i int, cie uint64, r *Revision) (Edit, bool) {
	u := &t.cies[t.entries[i].cie]
	pos := t.entries[i].pos
	d, next, ok := u.read(&t.area, pos)
	if !ok || pos < cie {
		return Edit{}, false
	}
	old := t.area.data[pos+4 : next]
	n := 4
	if r.Lead > 0 {
		n = len(old)
	}
	b := slices.Clone(old[:n])
	o := t.area.c.Order
	o.PutUint32(b, uint32(pos+4-cie))
	switch {
	case r.apart():
		// distance to the CIE, first address, size, length of what follows
		o.PutUint32(b[4:], o.Uint32(b[4:])+uint32(r.Lead))
		o.PutUint32(b[8:], uint32(d.Size-r.Lead))
		silence(b[n-len(d.Instructions):], u.cie, r.Lead)
	case r.Lead > 0:
		copy(b[n-len(d.Instructions):], r.instructions)
	}
	for n > 4 && b[n-1] == old[n-1] { // the rest stays, and need not be kept for whoever takes this back
		n--
	}
	return Edit{Addr: t.area.addr + pos + 4, Off: t.area.off + pos + 4, Old: old[:n], New: b[:n]}, true
}
