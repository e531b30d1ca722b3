package tracee

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Giving memory back.
//
// The recorder can be killed between any two calls. So the journals that are left name what is there, and nothing else: what is
// given back is struck out in its journal first, and the journals go last, each at once; that of the home names what others do not,
// and is the last one. What stays, for nobody, is at most what was struck out just then and is not unmapped yet.

// An unmapping is memory that is given back.
type unmapping struct {
	rest     []area
	slots    map[uint64]uint64
	journals map[uint64]bool
}

// unmapping begins to give back what is mapped, to which nothing leads any more.
func (a *Attachment) unmapping(mem *Process) (*unmapping, error) {
	u := &unmapping{rest: slices.Clone(a.mapped), slots: a.slots(), journals: make(map[uint64]bool)}
	for im := range a.noted() {
		u.journals[im.journal] = true
	}
	rank := func(m area) int {
		switch {
		case m.at == a.images[0].journal:
			return 2
		case u.journals[m.at]:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(u.rest, func(x, y area) int { return cmp.Compare(rank(x), rank(y)) })
	return u, a.closeJournals(mem)
}

// next gives some of it back.
func (u *unmapping) next(r *remote, most uint64) error {
	m := &u.rest[0]
	n := min(m.size, most)
	if u.journals[m.at] {
		n = m.size
	}
	if slot := u.slots[m.at]; slot != 0 {
		left := area{m.at + n, m.size - n}
		if err := r.t.WriteAt(le.AppendUint64(le.AppendUint64(nil, left.at), left.size), slot); err != nil {
			return err
		}
		if left.size > 0 {
			u.slots[left.at] = slot
		}
	}
	if _, err := r.call(unix.SYS_MUNMAP, m.at, n); err != nil {
		return fmt.Errorf("unmap %#x in the process: %w", m.at, err)
	}
	if m.at, m.size = m.at+n, m.size-n; m.size == 0 {
		u.rest = u.rest[1:]
	}
	return nil
}

// unmapMemory gives the plans' memory back.
func (a *Attachment) unmapMemory(r *remote) error {
	u, err := a.unmapping(&r.t.Process)
	for err == nil && len(u.rest) > 0 {
		err = u.next(r, u.rest[0].size)
	}
	return err
}

// unmapStep is how much memory is given back between two looks at the clock.
const unmapStep = 1 << 20

// unmap gives back what nobody is in any more. Of a large program that is much, and takes long: it is done in stops of a
// bounded length, of one thread.
func (d *detaching) unmap() error {
	u, err := d.a.unmapping(d.ts.memory())
	if err != nil {
		return err
	}
	if d.stack.lo != 0 {
		u.rest = slices.Insert(u.rest, 0, area{d.stack.lo, d.stack.hi - d.stack.lo})
		u.slots[d.stack.lo] = d.stack.noted
	}
	return d.ts.inStops(true, func() bool { return len(u.rest) > 0 }, func(began time.Time) error {
		return d.ts.calling(d.ms, func(r *remote) (err error) {
			for err == nil && len(u.rest) > 0 && time.Since(began) < d.ts.limit() {
				err = u.next(r, unmapStep)
			}
			return err
		})
	})
}
