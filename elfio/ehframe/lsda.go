package ehframe

import (
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/raw"
)

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
	bad := func(format string, args ...any) ([]CallSite, int, error) {
		return dst, limit, elfio.FormatErrorf("language-specific data", d.LSDA, format, args...)
	}
	data, _ := f.From(d.LSDA)
	if data == nil {
		return bad("of %v: no loaded segment has file contents there", d)
	}
	if len(data) > limit {
		data = data[:limit]
	}
	r := pointerReader{c: raw.CodecOf(f.Raw()), b: data, addr: d.LSDA}
	pads := d.PC
	if enc := r.u8(); enc != encOmit {
		pads = r.pointer(enc)
	}
	if enc := r.u8(); enc != encOmit {
		r.uleb() // distance to the types
	}
	enc := r.u8()
	switch enc {
	case encULEB, encUdata2, encUdata4, encUdata8, encSdata2, encSdata4, encSdata8:
	default:
		return bad("of %v: call sites with encoding %#x", d, enc)
	}
	rows := r
	rows.b = r.take(r.uleb())
	if r.bad {
		return bad("of %v: it does not fit into %d bytes", d, len(data))
	}
	for len(rows.b) > 0 {
		lo, size, pad := rows.pointer(enc), rows.pointer(enc), rows.pointer(enc)
		rows.uleb() // what it does there
		if rows.bad || lo > d.Size || size > d.Size-lo {
			return bad("of %v: a call site ends behind its %d bytes of code, or is cut off", d, d.Size)
		}
		if pad != 0 {
			pad += pads
		}
		dst = append(dst, CallSite{d.PC + lo, d.PC + lo + size, pad})
	}
	return dst, len(data) - len(r.b), nil
}
