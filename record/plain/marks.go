package plain

import "github.com/fentry-dev/fentry/record/code"

// mark is what is known about a byte of code. Marks of all code together take as much memory as the code.
type mark uint8

const (
	instruction mark = 1 << iota // one begins here
	ownBranch                    // a branch of the same function goes here
	tailJump                     // a jmp of another function
	otherBranch                  // any other branch of another function, or its code runs on into this
	called                       // a direct call
	pointed                      // an address in data or in an instruction
	landingPad                   // unwinders go here
	tableEntry                   // a jump table has it

	anyTarget = ownBranch | tailJump | otherBranch | called | pointed | landingPad | tableEntry
)

// marks are those of all code, region by region.
type marks struct {
	text   *code.Text
	of     [][]mark
	lo, hi uint64 // all code is in [lo, hi)
}

func newMarks(text *code.Text) marks {
	m := marks{text: text, lo: ^uint64(0)}
	for i := range text.Regions {
		r := &text.Regions[i]
		m.of = append(m.of, make([]mark, len(r.Data)))
		m.lo, m.hi = min(m.lo, r.Addr), max(m.hi, r.End())
	}
	return m
}

// add marks an address, if it is in code.
func (m *marks) add(addr uint64, k mark) {
	if b := m.at(addr); b != nil {
		b[0] |= k
	}
}

// get returns what is known about an address; 0: it is not in code.
func (m *marks) get(addr uint64) mark {
	if b := m.at(addr); b != nil {
		return b[0]
	}
	return 0
}

// any returns all that is known about the bytes of [lo, hi).
func (m *marks) any(lo, hi uint64) (k mark) {
	b := m.at(lo)
	for _, v := range b[:min(hi-lo, uint64(len(b)))] {
		k |= v
	}
	return k
}

// at returns the marks from an address to the end of its region.
func (m *marks) at(addr uint64) []mark {
	if addr < m.lo || addr >= m.hi {
		return nil
	}
	for i := range m.text.Regions {
		r := &m.text.Regions[i]
		if d := addr - r.Addr; d < uint64(len(r.Data)) {
			return m.of[i][d:]
		}
	}
	return nil
}
