package tracee

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// Taking the tracer out of a program that has begun with it.
//
// That is as with a process that was attached to: sites, return addresses, and what the runtime has mapped. What the program was
// given when it began stays where it is, code and data: unwinders were told then of tables that are there, handlers can have been
// installed by way of it, a call that was displaced returns there, and a function whose jump lies in two pages has that still. The
// switches there are off for good, and the runtime knows that it has been left, so who comes there goes on as in the program's own
// code. The page by which a runtime is found is gone, and so another one can come.
//
// Jumps lead to the runtime from where programs are executed, and where glibc's loader opens files. The recorder has put them there
// when the process asked for it, and remembers of no process where. It is read from the pages that they lead to.

// errOthers: libraries have brought the tracer, too, and find it in the program; or functions of it were added, which is an image, too.
var errOthers = fmt.Errorf("%w: libraries are traced, or functions that were added", ErrStays)

// Withdraw takes out of a process what Injected has found in it, and returns how long that was stopped at most. After an error the
// program may run its own code or not.
func (a *Attachment) Withdraw(pid int) (time.Duration, error) {
	r, ts, err := openTraced(pid)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	defer ts.close()
	ms, err := ts.maps()
	if err != nil {
		return 0, err
	}
	if len(a.images) != 1 || len(r.Images) != 1 || a.images[0].library != nil {
		return 0, errOthers
	}
	home := *a.images[0]
	if home.m, err = home.m.Removable(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrStays, err)
	}
	rx := area{home.bias + home.m.RXAddr, pageUp(home.m.Size())}
	v := &Attachment{images: []*image{&home}, stays: []area{rx}}
	if home.m.RWSize > 0 {
		v.stays = append(v.stays, area{home.bias + home.m.RWAddr, home.m.RWSize})
	}
	edits, behind, err := home.begunWith(ts.memory())
	if err != nil {
		return 0, err
	}
	v.edits = edits
	v.leading(ts.memory(), ms)
	slices.SortFunc(v.edits, byAddress)
	if err := arch.Check(v.edits); err != nil {
		return 0, err
	}
	if _, err := v.inStops(ts, chosen(behind, true, isEarly), nil); err != nil {
		return ts.longest, err
	}
	return v.leaveBy(ts, ms)
}

// forgetNone takes the block without an owner, which is in memory that stays, from threads that have it in their control base.
func (ts *threads) forgetNone(stays []area) {
	for _, t := range ts.all {
		if within(stays, t.regs.Gs_base) {
			t.regs.Gs_base, t.changed = 0, true
		}
	}
}

// begunWith are the edits of an image's code that are there, or were: its tables stay. Those of which the jump lies in one page end
// with that, and behind has the rest, to which nobody comes as long as the jump is there.
func (im *image) begunWith(mem arch.Memory) (edits, behind []arch.Edit, err error) {
	code := func(e *arch.Edit) bool { return !isTable(e) && e.Reason != patch.ReasonHeaders }
	edits = chosen(im.planned(), false, code)
	for i := range edits {
		e := &edits[i]
		if n := int(PageSize - e.Addr%PageSize); inTwoPages(*e) && n >= jumpLen && e.New[0] == jumpOp {
			behind = append(behind, arch.Edit{Addr: e.Addr + uint64(n), Old: e.Old[n:], New: e.New[n:], Func: e.Func, Reason: e.Reason})
			e.Old, e.New = e.Old[:n:n], e.New[:n:n]
		}
	}
	if _, err = pending(mem, edits); err == nil {
		_, err = pending(mem, behind)
	}
	return edits, behind, err
}

// leading finds what leads to the runtime beside an image's own edits, and takes it for what is to be restored. The pages for
// programs that are executed go then, those of the loader stay: a thread can be about to come back there.
func (a *Attachment) leading(mem *Process, ms []mapping) {
	home := a.images[0]
	exec, loader := home.bias+home.m.Running.Exec, home.bias+home.m.Loader
	page := make([]byte, PageSize)
	for _, m := range ms {
		if m.perms != "r-xp" || m.path != "" || a.inside(m.lo) {
			continue
		}
		for at := m.lo; at < m.hi && m.hi-m.lo <= maxCode; at += PageSize {
			if mem.ReadAt(page, at) != nil {
				continue
			}
			edits := made(mem, execEdits(page, at, exec))
			if len(edits) > 0 {
				a.mapped = append(a.mapped, area{at, PageSize})
			}
			a.edits = append(append(a.edits, edits...), made(mem, openEdits(page, at, loader))...)
		}
	}
}

// made are those of edits that are there.
func made(mem arch.Memory, edits []arch.Edit) []arch.Edit {
	return slices.DeleteFunc(edits, func(e arch.Edit) bool {
		is := make([]byte, len(e.New))
		return mem.ReadAt(is, e.Addr) != nil || !bytes.Equal(is, e.New)
	})
}

// execEdits are the jumps to the stubs of a page that execStubs has made for a routine; none: it is another page.
func execEdits(page []byte, at, routine uint64) (edits []arch.Edit) {
	for off := 0; off+execStubSize <= len(page); off += execStubSize {
		stub := page[off:][:execStubSize]
		if le.Uint64(stub[execStubSize-8:]) != routine {
			break
		}
		for _, nr := range execNumbers {
			s := execSite{nr: nr}
			load := s.load()
			if !bytes.HasPrefix(stub, load) {
				continue
			}
			// Behind the instruction, which is the site's own, one of 7 bytes loads the address behind the site.
			addr := at + uint64(off)
			s.at = addr + 7 + uint64(int64(int32(le.Uint32(stub[len(load)+3:]))))
			b, jump := execStubs(addr, routine, []execSite{s})
			if bytes.Equal(b, stub) {
				edits = append(edits, jump...)
			}
		}
	}
	return edits
}

// openEdits are the jumps to the stubs of a page that openStub has made, and that go on to a routine.
func openEdits(page []byte, at, routine uint64) (edits []arch.Edit) {
	const next = 36 // where the address behind the site is loaded
	for off := 0; off+stubSize <= len(page); off += stubSize {
		stub, addr := page[off:][:stubSize], at+uint64(off)
		if le.Uint64(stub[stubSlot:]) != routine {
			break
		}
		site := addr + next + 7 + uint64(int64(int32(le.Uint32(stub[next+3:])))) - uint64(len(callAndCheck))
		b, e, err := openStub(addr, site, ways{})
		if err == nil && bytes.Equal(b[:stubSlot], stub[:stubSlot]) {
			edits = append(edits, e)
		}
	}
	return edits
}
