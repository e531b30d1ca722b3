package patch

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/internal/bigslice"
	"github.com/fentry-dev/fentry/record"
)

// What unwinders have to know. Thunks, veneers and runtime get entries of their own. The image's entries get a rule that
// finds a traced function's real caller, most of them in their place (package ehframe, extend.go): backtraces and
// exceptions see the same functions as in the original. A sorted table over all of them is what unwinders use; what is
// not in the image's own section debuggers get once more, as .debug_frame, because they read sections by name.

// thunkFrames is the piece that the added unwind information begins with.
const thunkFrames = ".fentry.thunk_frames"

// unwind lays out the unwind information.
func (l *layout) unwind() error {
	p := l.p
	if p.golang != nil && (l.thunks == 0 || p.untabled()) {
		return nil // nobody unwinds by these tables: return addresses are what they were, or there are none (Go's own linker)
	}
	if p.Options.Target == File && !l.seg.EhFrame {
		if p.unwinds() {
			return fmt.Errorf("no room in the program header table for unwind information: " +
				"exceptions could not pass traced functions")
		}
		return nil
	}
	if err := l.handlers(); err != nil {
		return err
	}
	at := l.align(8)
	frames := p.m.frames(at, l.fronts, l.runs, l.backs)
	l.addRows(frames)
	own := frames.EhFrame
	first := l.add(piece{name: thunkFrames, size: uint64(len(own)), align: 8, owner: nobody, ready: own})
	debug := frames.DebugFrame
	r := &l.runtime
	extra := make([]ehframe.Entry, 0, len(frames.FDEs)+r.frames.Len())
	for _, d := range frames.FDEs {
		extra = append(extra, ehframe.Entry{PC: d.PC, FDE: d.Addr})
	}
	extra = append(extra, r.frames.Entries()...)
	forDebuggers := ehframe.Moved{DebugFrame: debug}
	err := forDebuggers.Append(p.file, r.ehFrame, uint64(len(debug)), r.frames.All(), ehframe.Rules{})
	if err != nil {
		return fmt.Errorf("embedded runtime: %w", err)
	}
	debug = forDebuggers.DebugFrame

	var hdr []byte
	at = l.align(8)
	moved := ehframe.Moved{EhFrame: l.rx, DebugFrame: debug}
	base := at - uint64(len(l.rx))
	copied, err := l.callers(&moved, at)
	if err != nil {
		return err
	}
	if len(moved.Entries) > 0 {
		l.rx, debug = moved.EhFrame, moved.DebugFrame
		l.made(piece{name: ".fentry.frames", addr: at, align: 8, owner: nobody})
	}
	// Who reads entries one after another, from where the search table says that they are, stops here.
	l.add(piece{name: l.pieces[len(l.pieces)-1].name, size: 4, align: 4, owner: nobody, ready: make([]byte, 4)})
	if p.Options.Addition.beside() || p.untabled() {
		hdr, err = ehframe.NewHeader(p.file, l.align(4), first, moved.Entries, extra)
	} else if copied != nil {
		hdr, err = copied.header(p.file, l.align(4), moved.Entries, extra)
	} else {
		hdr, err = ehframe.MergeHeader(p.file, l.align(4), slices.Concat(extra, moved.Entries, p.unlisted()))
	}
	if err != nil {
		return err
	}
	at = l.add(piece{name: ".fentry.eh_frame_hdr", size: uint64(len(hdr)), align: 4, owner: nobody, ready: hdr})
	l.ehFrameHdr = [2]uint64{at, uint64(len(hdr))}
	if l.p.Options.Running && l.p.flavour().hides() && !l.p.Options.Addition.beside() {
		if err := l.redirect(hdr, at, &moved, base); err != nil {
			return err
		}
	}
	if l.p.Options.Target == File {
		l.sections = append(l.sections, debugFrame(l.ownDebugFrame(debug)))
	}
	return nil
}

// untabled reports whether an image has no unwind information.
func (p *Plan) untabled() bool {
	t, err := ehframe.Read(p.file)
	return err == nil && t.Len() == 0
}

// unlisted are the entries of an image that has no search table, if the runtime is to walk stacks by one.
func (p *Plan) unlisted() []ehframe.Entry {
	if !p.Options.walks() || p.file.ProgIndex(elf.PT_GNU_EH_FRAME) >= 0 {
		return nil
	}
	table, err := ehframe.Read(p.file)
	if err != nil {
		return nil
	}
	all := make([]ehframe.Entry, 0, table.Len())
	for d := range table.All() {
		all = append(all, ehframe.Entry{PC: d.PC, FDE: d.Addr})
	}
	return all
}

// addRows adds the rows of pieces that bring them. Added pieces in a row that have the same rows share an entry.
func (l *layout) addRows(to *arch.Frames) {
	for i := 0; i < len(l.pieces); {
		pc := &l.pieces[i]
		end := pc.end()
		for i++; i < len(l.pieces) && !l.inCode(pc); i++ {
			next := &l.pieces[i]
			if next.addr != end || !bytes.Equal(next.rows, pc.rows) {
				break
			}
			end = next.end()
		}
		if pc.rows != nil {
			to.Add(pc.addr, end-pc.addr, pc.rows)
		}
	}
}

// unwinds tells whether the stack may be unwound past functions of an image that has no search table: by code in it, or, if it
// says so itself (__register_frame_info), by another image's. A static one that is stripped is believed to have such code.
func (p *Plan) unwinds() bool {
	if p.untabled() {
		return false
	}
	syms, err := p.file.Symbols()
	if err != nil || len(syms) == 0 {
		if p.file.ProgIndex(elf.PT_DYNAMIC) < 0 {
			return true
		}
		if syms, err = p.file.DynamicSymbols(); err != nil {
			return true
		}
	}
	return slices.ContainsFunc(syms, func(s elfio.Symbol) bool {
		return strings.HasPrefix(s.Name, "_Unwind_") || strings.HasPrefix(s.Name, "__register_frame")
	})
}

// registers tells whether the image's start-up code registers .eh_frame, from somewhere in it on (gcc's crtbeginT.o does, in
// static programs). Unwinders then read what is registered, entry by entry, before they look for a search table, which
// the image may have, too (clang asks for one). A stripped one is believed to register it.
func (p *Plan) registers() bool {
	has := func(t elf.ProgType) bool {
		i := p.file.ProgIndex(t)
		return i >= 0 && p.file.Progs[i].Filesz > 0
	}
	if !has(elf.PT_GNU_EH_FRAME) {
		return true
	}
	if has(elf.PT_DYNAMIC) {
		return false
	}
	syms, err := p.file.Symbols()
	if err != nil || len(syms) == 0 {
		return true
	}
	return slices.ContainsFunc(syms, func(s elfio.Symbol) bool { return s.Name == "__register_frame_info" })
}

// ruled is an image's unwind information once the rule that looks behind thunks has been added to it.
type ruled struct {
	at    uint64          // address of it, or of its copy
	stays []ehframe.Entry // entries that are still where they were
	entry []ehframe.Entry // that of the entry point, if it alone does and the runtime's own walks are to end there
}

// header is the search table, with the entries that have been copied and others.
func (r *ruled) header(f *elfio.File, at uint64, copied, others []ehframe.Entry) ([]byte, error) {
	if len(r.stays) == 0 {
		return ehframe.NewHeader(f, at, r.at, copied, append(others, r.entry...))
	}
	return ehframe.NewHeader(f, at, r.at, r.stays, append(others, copied...))
}

// variants are the CIEs of a machine that has variants of them; nil: each entry has to change. Unwinders must not have
// them for their own functions. A plan for plain functions knows which these are; other programs have none if they use
// the library's.
func (l *layout) variants() *ehframe.Variants {
	by := l.p.m.reviser()
	if by == nil || !l.p.plain() && !needs(l.p.file, "libgcc_s.so.1") {
		return nil
	}
	return ehframe.NewVariants(by)
}

// needs reports whether an image needs a library.
func needs(f *elfio.File, library string) bool {
	dyn, err := f.Dynamic()
	if err != nil {
		return false
	}
	var names []byte
	if i := slices.IndexFunc(dyn, func(d elfio.Dyn) bool { return d.Tag == elf.DT_STRTAB }); i >= 0 {
		names, _ = f.From(dyn[i].Val)
	}
	return slices.ContainsFunc(dyn, func(d elfio.Dyn) bool {
		return d.Tag == elf.DT_NEEDED && d.Val < uint64(len(names)) && bytes.HasPrefix(names[d.Val:], []byte(library+"\x00"))
	})
}

// yieldVariants yields what stands for an entry in copies.
func yieldVariants(d *ehframe.FDE, v *ehframe.Variants, readers map[uint64]bool, yield func(*ehframe.FDE) bool) bool {
	if v == nil || readers[d.PC] {
		return yield(d)
	}
	parts := v.Split(d)
	for i := range parts {
		if !yield(&parts[i]) {
			return false
		}
	}
	return len(parts) > 0 || yield(d)
}

// extend adds a rule to the image's unwind information in its place, and returns what of it stays there, by entry; nil:
// that cannot be done.
func (l *layout) extend(
	table *ehframe.Table, rules ehframe.Rules, variants *ehframe.Variants, readers map[uint64]bool,
) *ehframe.Extension {
	var x *ehframe.Extension
	switch {
	case variants != nil:
		x = table.Revise(variants, func(pc uint64) bool { return readers[pc] })
	case rules.FDE == nil:
		x = table.Extend(rules.CIE)
	default: // each entry changes
		return nil
	}
	for _, e := range x.Edits {
		// What is loaded counts, the section header may say something else.
		if off, ok := l.p.file.Offset(e.Addr); !ok || off != e.Off {
			return nil
		}
	}
	for _, e := range x.Edits {
		l.tables = append(l.tables, arch.Edit{Addr: e.Addr, Old: bytes.Clone(e.Old), New: e.New, Reason: ReasonUnwind})
	}
	return x
}

// callers adds the rule that looks behind thunks to the image's unwind information: in its place as far as there is
// room, and else to copies, at the end of the read-execute memory, at address at, and for debuggers at the end of
// .debug_frame. It appends the entries of displaced instructions to both. nil: only the latter, because no return address
// is hidden, or because the image has no unwind information, or one that cannot be copied; thunks then show in
// backtraces.
func (l *layout) callers(to *ehframe.Moved, at uint64) (*ruled, error) {
	f := l.p.file
	table, err := ehframe.Read(f)
	if err != nil || table.Len() == 0 {
		return nil, nil
	}
	if !l.p.flavour().hides() {
		return nil, l.appendFrames(to, at, l.copiedFrames(table, nil, &err), &err, ehframe.Rules{})
	}
	rules, readers, variants := l.p.m.callers(), l.readers(), l.variants()
	if l.p.Options.Addition.beside() { // the image's own entries have the rule
		return nil, l.appendFrames(to, at, l.copiedFrames(table, variants, &err), &err, rules)
	}
	fdes := table.All()
	out := &ruled{at: at}
	registered := l.p.registers()
	if registered {
		// Not the entry point's FDE, which comes before the part that is registered, and stays as it is.
		fdes = func(yield func(*ehframe.FDE) bool) {
			for d := range table.All() {
				if !l.isEntry(d) && !yield(d) {
					return
				}
			}
		}
		for d := range table.All() {
			if l.p.Options.walks() && l.isEntry(d) { // else unwinders would find one caller more than without
				out.entry = append(out.entry, ehframe.Entry{PC: d.PC, FDE: d.Addr})
			}
		}
	} else if l.p.Options.Running {
		// Nothing is changed in its place.
	} else if x := l.extend(table, rules, variants, readers); x != nil {
		fdes, out.at = out.apart(table, x, readers, variants != nil), table.Addr()
	}
	exceptReaders(&rules, readers)
	empty := ehframe.Moved{EhFrame: to.EhFrame, DebugFrame: to.DebugFrame}
	if len(out.stays) == 0 {
		to.DebugFrame = bigslice.Grow(to.DebugFrame, table.CopySize())
		to.Entries = bigslice.Make[ehframe.Entry](0, table.Len())
	}
	all := func(yield func(*ehframe.FDE) bool) {
		for d := range fdes {
			if !yieldVariants(d, variants, readers, yield) {
				return
			}
		}
		l.copiedFrames(table, variants, &err)(yield)
	}
	if bad := l.appendFrames(to, at, all, &err, rules); bad != nil || registered && !l.p.Options.Running && !l.hide(fdes) {
		if l.displaces { // without them exceptions would end in the middle of functions
			return nil, cmp.Or(bad, fmt.Errorf("the image's unwind information cannot be copied"))
		}
		*to, l.tables = empty, nil
		return nil, nil
	}
	return out, nil
}

// copiedFrames yields the entries of all instructions that have been moved. An error is left in err.
func (l *layout) copiedFrames(t *ehframe.Table, v *ehframe.Variants, err *error) iter.Seq[*ehframe.FDE] {
	return func(yield func(*ehframe.FDE) bool) {
		more := true
		each := func(d *ehframe.FDE) bool { more = yield(d); return more }
		if l.displacedFrames(t, v, err)(each); more && *err == nil {
			l.syscallFrames(t, err)(each)
		}
		if more && *err == nil {
			l.placedFrames(t, err)(each)
		}
	}
}

// isEntry reports whether an entry is that of the image's entry point.
func (l *layout) isEntry(d *ehframe.FDE) bool { return l.p.OrigEntry-d.PC < d.Size }

// readers are the functions that read their return address. Unwinders do, to begin with their own caller: the rows that
// they have for it must agree with what they have read. That is a thunk's address if a traced function has jumped to them,
// as libc's do to those of libgcc_s, and then the rows of thunks say the rest. Of an unwinder's functions that have not been
// looked at their names tell.
func (l *layout) readers() map[uint64]bool {
	out := map[uint64]bool{}
	for _, s := range l.p.unwinder() {
		out[s.Value] = true
	}
	for i := range l.p.Functions {
		switch fn := &l.p.Functions[i]; {
		case fn.Reason == record.ReasonReadsReturn:
			out[fn.Func] = true
		case fn.Action == Trace:
			delete(out, fn.Func)
		}
	}
	return out
}

// unwinder are the functions of an unwinder that an image has in it for others, by their names.
func (p *Plan) unwinder() []elfio.Symbol {
	has, err := p.file.HasDynamicSymbol("_Unwind_RaiseException", "_Unwind_ForcedUnwind", "unw_step", "_Ux86_64_step")
	if err != nil || !has {
		return nil
	}
	other := func(s elfio.Symbol) bool { return !s.Defined() || !record.Unwinds(s.Name) }
	exported, err := p.file.DynamicSymbols()
	if exported = slices.DeleteFunc(exported, other); err != nil || len(exported) == 0 {
		return nil
	}
	own, err := p.file.Symbols()
	if err != nil {
		return exported
	}
	return append(exported, slices.DeleteFunc(own, other)...)
}

// exceptReaders leaves the entries of some functions as they are.
func exceptReaders(r *ehframe.Rules, readers map[uint64]bool) {
	change := r.FDE
	r.FDE = func(d *ehframe.FDE) ([]byte, bool) {
		switch {
		case readers[d.PC]:
			return nil, false
		case change == nil:
			return d.Instructions, true
		}
		return change(d)
	}
}

// apart keeps the entries that stay where they are, and returns the others. Readers stay if their CIEs do.
func (r *ruled) apart(
	table *ehframe.Table, x *ehframe.Extension, readers map[uint64]bool, sameCIEs bool,
) iter.Seq[*ehframe.FDE] {
	r.stays = bigslice.Make[ehframe.Entry](0, table.Len())
	var others []int
	for i := range table.Len() {
		if d := table.At(i); x.Stays(i) && (sameCIEs || !readers[d.PC]) {
			r.stays = append(r.stays, x.Entry(&d, i))
		} else {
			others = append(others, i)
		}
	}
	return func(yield func(*ehframe.FDE) bool) {
		for i := range x.Leads {
			if !yield(&x.Leads[i]) {
				return
			}
		}
		for _, i := range others {
			if d := table.At(i); !yield(&d) {
				return
			}
		}
	}
}

// appendFrames appends copies of entries. What yields them leaves its error in err.
func (l *layout) appendFrames(to *ehframe.Moved, at uint64, fdes iter.Seq[*ehframe.FDE], err *error, r ehframe.Rules) error {
	bad := to.Append(l.p.file, at, uint64(len(to.DebugFrame)), fdes, r)
	return cmp.Or(*err, bad)
}

// hide makes the originals of copied FDEs cover no code, as what start-up code registers is looked at first.
func (l *layout) hide(fdes iter.Seq[*ehframe.FDE]) bool {
	for d := range fdes {
		if e, err := ehframe.Hide(l.p.file, d); err != nil || !l.editEntry(d, e) {
			l.tables = nil
			return false
		}
	}
	return true
}

// editEntry has a part of an FDE changed in its place. It returns false if start-up code finds another entry there: it looks where the
// segments are, the section header may say something else.
func (l *layout) editEntry(d *ehframe.FDE, e elfio.RawEdit) bool {
	f, addr := l.p.file, d.Addr+(e.Off-d.Off)
	if off, ok := f.Offset(addr); !ok || off != e.Off {
		return false
	}
	l.tables = append(l.tables, arch.Edit{
		Addr: addr, Old: bytes.Clone(f.Raw()[e.Off : e.Off+uint64(len(e.New))]), New: e.New, Reason: ReasonUnwind,
	})
	return true
}

// Catches reports whether exceptions can be caught, or destructors called, in functions of an image: an entry names a personality
// routine. If its entries cannot be read, they can.
func Catches(f *elfio.File) bool {
	t, err := ehframe.Read(f)
	return err != nil || t.HasPersonality()
}
