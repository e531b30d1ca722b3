package plain

import "github.com/fentry-dev/fentry/elfio/ehframe"

// frames says where the frame is at the addresses of one function, which are mostly asked for in ascending order.
type frames struct {
	fde   ehframe.FDE
	found bool // the function has an entry, and its rows could be read
	rows  []ehframe.Row
	next  int
}

// open begins with another function.
func (f *frames) open(x *ehframe.Index, addr uint64) {
	f.rows, f.next = f.rows[:0], 0
	if f.fde, f.found = x.Find(addr); !f.found {
		return
	}
	var err error
	f.rows, err = f.fde.AppendRows(f.rows)
	f.found = err == nil
}

// at returns the row of an address; false: nothing is known there.
func (f *frames) at(addr uint64) (*ehframe.Row, bool) {
	off := addr - f.fde.PC
	if !f.found || off >= f.fde.Size {
		return nil, false
	}
	if f.rows[f.next].At > off {
		f.next = 0
	}
	for f.next+1 < len(f.rows) && f.rows[f.next+1].At <= off {
		f.next++
	}
	return &f.rows[f.next], true
}
