package ehframe

import "github.com/fentry-dev/fentry/elfio"

// Language-specific data.
//
// Compilers of C++, Rust, Ada, D and others all leave the tables of gcc's personality routines (.gcc_except_table): for
// each range of calls where unwinding goes on, or nothing. Only that first table is read, because it says two things
// about code that is to be moved: what is a landing pad, which unwinders go to, and which calls a handler is for. A
// call that no row covers must not throw at all.

// CallSite is a row of a call-site table: calls in [Lo, Hi) continue at Pad when an exception passes; 0: they have no
// landing pad.
type CallSite struct{ Lo, Hi, Pad uint64 }

// AppendCallSites appends the call sites of an entry that has language-specific data. It reads at most limit bytes and
// returns how many it has read: entries can share their data, so whoever reads those of all of them has to bound the sum.
func (d *FDE) AppendCallSites(f *elfio.File, dst []CallSite, limit int) ([]CallSite, int, error) {
	s, err := d.readLSDA(f, limit)
	if err != nil {
		return dst, limit, err
	}
	for {
		c, ok, err := s.next()
		if err != nil {
			return dst, limit, err
		}
		if !ok {
			return dst, s.consumed, nil
		}
		dst = append(dst, c.CallSite)
	}
}
