package ehframe

import (
	"encoding/binary"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

// Language-specific data of moved calls.
//
// An instruction that has been moved out of its function is not in the function's call-site table. A call that nothing
// catches needs none. For others the copy gets a table of its own, with the rows of the calls that have moved: the same
// landing pads, which stay in the function, so the table says what they are relative to (LPStart); and what those rows
// refer to, which are chains of actions (catch this, clean up), types, and lists of types (exception specifications).
// Landing pads are told the number of the type that has matched, or how far its list is behind the types. So these stay
// what they were, and what comes before the last type and the last list that are needed is copied with them.
//
//	LPStart, pcrel | sdata4     where the function's landing pads count from
//	types, pcrel | sdata4       or omitted; indirect if they were
//	call sites, uleb128         of the moved calls, from the beginning of the copy
//	actions                     one chain behind another
//	types                       backwards, up to what the header's distance leads to
//	lists of types              uleb128, each ends with 0
//
// Images are little-endian. Sources: libgcc's unwind-dw2-fde and unwind-pe.h, libstdc++'s eh_personality.cc; the format is that of the
// Itanium C++ ABI's exception handling, "LSDA".

// lsda is language-specific data that has been read as far as its call sites.
type lsda struct {
	d        *FDE
	f        *elfio.File
	lpStart  uint64
	typeEnc  byte
	types    uint64 // address behind the types
	sites    pointerReader
	siteEnc  byte
	actions  uint64 // address of the actions
	consumed int
}

// readLSDA reads a header, from at most limit bytes.
func (d *FDE) readLSDA(f *elfio.File, limit int) (*lsda, error) {
	data, _ := f.From(d.LSDA)
	if data == nil {
		return nil, d.badLSDA("no loaded segment has file contents there")
	}
	data = data[:min(len(data), limit)]
	r := pointerReader{c: raw.CodecOf(f.Raw()), b: data, addr: d.LSDA}
	s := &lsda{d: d, f: f, lpStart: d.PC, typeEnc: encOmit}
	if enc := r.u8(); enc != encOmit {
		s.lpStart = r.pointer(enc)
	}
	if s.typeEnc = r.u8(); s.typeEnc != encOmit {
		n := r.uleb()
		s.types = r.addr + n
	}
	s.siteEnc = r.u8()
	switch s.siteEnc {
	case encULEB, encUdata2, encUdata4, encUdata8, encSdata2, encSdata4, encSdata8:
	default:
		return nil, d.badLSDA("call sites with encoding %#x", s.siteEnc)
	}
	n := r.uleb()
	s.sites = r
	s.sites.b = r.take(n)
	if r.bad {
		return nil, d.badLSDA("it does not fit into %d bytes", len(data))
	}
	s.actions, s.consumed = r.addr, len(data)-len(r.b)
	return s, nil
}

func (d *FDE) badLSDA(format string, args ...any) error {
	return elfio.FormatErrorf("language-specific data", d.LSDA, "of %v: "+format, append([]any{d}, args...)...)
}

// callSite is a row with what it does there.
type callSite struct {
	CallSite
	action uint64 // 0: cleans up; else 1 + the offset of the first action
}

// next takes a row. ok is false behind the last one.
func (s *lsda) next() (c callSite, ok bool, err error) {
	r := &s.sites
	if len(r.b) == 0 {
		return c, false, nil
	}
	lo, size, pad := r.pointer(s.siteEnc), r.pointer(s.siteEnc), r.pointer(s.siteEnc)
	c.action = r.uleb()
	if r.bad || lo > s.d.Size || size > s.d.Size-lo {
		return c, false, s.d.badLSDA("a call site ends behind its %d bytes of code, or is cut off", s.d.Size)
	}
	if pad != 0 {
		pad += s.lpStart
	}
	c.CallSite = CallSite{s.d.PC + lo, s.d.PC + lo + size, pad}
	return c, true, nil
}

// Bounds of what is read for a moved call.
const (
	maxLSDA    = 1 << 20 // bytes
	maxRows    = 64      // of calls at a function's beginning
	maxActions = 256     // in a chain, and types in a list
	maxTypes   = 1 << 12
	maxLists   = 1 << 12 // bytes
)

// AppendMovedLSDA appends, for address to, language-specific data of a copy of the first instructions of an entry's code:
// those before offset size of it, from the first instruction that has moved. place returns where in the copy the
// instruction begins that begins at such an offset, and false for what has not moved. fixed says that the image cannot be
// moved: then its types can have addresses that nothing relocates.
func (d *FDE) AppendMovedLSDA(dst []byte, f *elfio.File, to, from, size uint64, fixed bool,
	place func(off uint64) (uint64, bool)) ([]byte, error) {
	s, err := d.readLSDA(f, maxLSDA)
	if err != nil {
		return dst, err
	}
	m := movedLSDA{lsda: s, fixed: fixed}
	for n := 0; ; n++ {
		c, ok, err := s.next()
		if err != nil {
			return dst, err
		}
		if !ok || c.Lo-d.PC >= size { // they are sorted, as personality routines believe, too
			break
		}
		if n == maxRows {
			return dst, d.badLSDA("more than %d call sites at its beginning", n)
		}
		lo, hi := max(c.Lo-d.PC, from), min(c.Hi-d.PC, size)
		if lo >= hi {
			continue
		}
		first, ok1 := place(lo)
		end, ok2 := place(hi)
		if !ok1 || !ok2 {
			return dst, d.badLSDA("a call site begins or ends in the middle of an instruction at %#x", c.Lo)
		}
		if err := m.add(c, first, end); err != nil {
			return dst, err
		}
	}
	return m.append(dst, to)
}

// movedLSDA is what is made.
type movedLSDA struct {
	*lsda
	fixed   bool
	rows    []byte
	actions []byte
	types   uint64 // how many
	lists   uint64 // bytes
}

// add adds a row for [lo, hi) of the copy.
func (m *movedLSDA) add(c callSite, lo, hi uint64) error {
	pad := uint64(0)
	if c.Pad != 0 {
		pad = c.Pad - m.lpStart
	}
	action := uint64(0)
	if c.action != 0 {
		action = uint64(len(m.actions)) + 1
		if err := m.chain(m.lsda.actions + c.action - 1); err != nil {
			return err
		}
	}
	for _, v := range [...]uint64{lo, hi - lo, pad, action} {
		m.rows = appendULEB(m.rows, v)
	}
	return nil
}

// reader reads loaded bytes at an address.
func (m *movedLSDA) reader(addr uint64) pointerReader {
	b, _ := m.f.From(addr)
	return pointerReader{c: raw.CodecOf(m.f.Raw()), b: b[:min(len(b), maxLSDA)], addr: addr}
}

// chain copies a chain of actions.
func (m *movedLSDA) chain(at uint64) error {
	for n := 0; ; n++ {
		r := m.reader(at)
		filter := r.sleb()
		here := r.addr
		next := r.sleb()
		if r.bad || n == maxActions {
			return m.d.badLSDA("actions at %#x end nowhere", at)
		}
		if err := m.filter(filter); err != nil {
			return err
		}
		m.actions = appendSLEB(m.actions, filter)
		if next == 0 {
			m.actions = appendSLEB(m.actions, 0)
			return nil
		}
		m.actions = appendSLEB(m.actions, 1) // right behind
		at = here + uint64(next)
	}
}

// filter notes what a filter refers to: a type, or a list of them, or nothing.
func (m *movedLSDA) filter(v int64) error {
	switch {
	case v == 0:
		return nil
	case m.typeEnc == encOmit:
		return m.d.badLSDA("filter %d, and no types", v)
	case v > 0:
		m.types = max(m.types, uint64(v))
		return nil
	}
	r := m.reader(m.lsda.types + uint64(-(v + 1)))
	for n := 0; ; n++ {
		k := r.uleb()
		if r.bad || n == maxActions {
			return m.d.badLSDA("types of filter %d end nowhere", v)
		}
		if m.types = max(m.types, k); k == 0 {
			m.lists = max(m.lists, r.addr-m.lsda.types)
			return nil
		}
	}
}

// typeAddrs returns the addresses of types, the last one first; 0: anything.
func (m *movedLSDA) typeAddrs() ([]uint64, error) {
	size := uint64(4)
	switch enc := m.typeEnc &^ 0x80; {
	case m.types == 0 && m.lists <= maxLists:
		return nil, nil
	case enc == encPCRel|encSdata4, m.fixed && (enc == encUdata4 || enc == encSdata4):
	case enc == encPCRel|encSdata8:
		size = 8
	default:
		return nil, m.d.badLSDA("types with encoding %#x", m.typeEnc)
	}
	if m.types > maxTypes || m.lists > maxLists {
		return nil, m.d.badLSDA("%d types, and lists of %d bytes", m.types, m.lists)
	}
	r := m.reader(m.lsda.types - m.types*size)
	out := make([]uint64, m.types)
	for i := range out {
		out[i] = r.pointer(m.typeEnc &^ 0x80)
	}
	if r.bad {
		return nil, m.d.badLSDA("%d types before %#x are not there", m.types, m.lsda.types)
	}
	return out, nil
}

// append writes all of it, for address to.
func (m *movedLSDA) append(dst []byte, to uint64) ([]byte, error) {
	start := len(dst)
	word := func(target uint64) error {
		if target == 0 {
			dst = binary.LittleEndian.AppendUint32(dst, 0)
			return nil
		}
		v, err := raw.Disp32("moved language-specific data", target, to+uint64(len(dst)-start))
		dst = binary.LittleEndian.AppendUint32(dst, v)
		return err
	}
	dst = append(dst, encPCRel|encSdata4)
	if err := word(m.lpStart); err != nil {
		return dst[:start], err
	}
	body := appendULEB([]byte{encULEB}, uint64(len(m.rows)))
	body = append(append(body, m.rows...), m.actions...)
	if m.types == 0 && m.lists == 0 {
		return append(append(dst, encOmit), body...), nil
	}
	types, err := m.typeAddrs()
	if err != nil {
		return dst[:start], err
	}
	dst = append(dst, encPCRel|encSdata4|m.typeEnc&0x80)
	dst = appendULEB(dst, uint64(len(body)+4*len(types)))
	dst = append(dst, body...)
	for _, t := range types {
		if err := word(t); err != nil {
			return dst[:start], err
		}
	}
	lists := m.reader(m.lsda.types)
	return append(dst, lists.take(m.lists)...), nil
}
