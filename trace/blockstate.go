package trace

import (
	"encoding/binary"
	"slices"
	"sort"

	"github.com/fentry-dev/fentry/internal/format"
)

// What a follower knows at the start of a block is stored as the difference to the
// block before: a stack of which calls have ended and others begun since is how many
// of its frames are left, and the new ones. Of the frames that are left, only the
// innermost can have spent time; and whether a frame was there is a bit in it, so the
// hot path of a follower, which entries and exits take, does nothing for all this.
//
// This file makes the differences; blockapply.go applies them.

// A blockState is what a block starts with besides its follower.
type blockState struct {
	number     uint32 // decoder.number
	comm       string // name of the task
	tail, leaf bool   // cursor.tail and cursor.leaf
}

// A savedStack is what the newest saved state has of a stack.
type savedStack struct {
	depth int
	self  uint64 // of its innermost frame
}

// A stateSaver makes the differences of one follower.
type stateSaver struct {
	numbering
	stacks    map[uint64]savedStack
	aside     int // frames
	now       uint64
	comm      string
	inherited []openCall
	block     int32 // what frames that are saved have as their ref
}

// newStateSaver returns a saver whose first difference is to the state that the follower has now.
func newStateSaver(fl *follower, comm string, n numbering) *stateSaver {
	s := &stateSaver{
		numbering: n, stacks: map[uint64]savedStack{}, aside: len(fl.aside), now: fl.now, comm: comm, inherited: fl.inherited,
	}
	s.known(fl.cur)
	for _, st := range fl.stacks {
		s.known(st)
	}
	for i := range fl.aside {
		fl.aside[i].saved = int32(i) + 1
		fl.aside[i].flags |= frameSaved
	}
	return s
}

// known notes a stack that is saved as it is.
func (s *stateSaver) known(st *callStack) {
	for i := range st.frames {
		st.frames[i].flags |= frameSaved
	}
	s.stacks[st.num] = savedStack{len(st.frames), topSelf(st.frames)}
}

// take notes that a frame is in the saved state.
func (s *stateSaver) take(f *frame) {
	if f.flags&frameSaved == 0 {
		f.flags |= frameSaved
		f.ref = s.block
	}
}

func topSelf(fs []frame) uint64 {
	if len(fs) == 0 {
		return 0
	}
	return fs[len(fs)-1].self
}

// kept returns how many of the frames were there in the newest saved state.
func kept(fs []frame) int {
	if n := len(fs); n == 0 || fs[n-1].flags&frameSaved != 0 {
		return n
	}
	return sort.Search(len(fs), func(i int) bool { return fs[i].flags&frameSaved == 0 })
}

// cost is about how many frames, or things of their size, a difference has now.
func (s *stateSaver) cost(fl *follower) int {
	n := len(s.stacks) + len(fl.stacks) + len(fl.cur.frames) - kept(fl.cur.frames)
	for _, st := range fl.stacks {
		n += len(st.frames) - kept(st.frames)
	}
	if len(fl.inherited) != len(s.inherited) {
		n += len(fl.inherited)
	}
	return n + max(0, len(fl.aside)-s.aside)
}

func (st *callStack) changed(old savedStack, known bool) bool {
	return !known || kept(st.frames) != old.depth || len(st.frames) != old.depth || topSelf(st.frames) != old.self
}

func sameCalls(a, b []openCall) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// save appends the difference between the state of fl and the one saved before. next
// is the number that the decoder expected when it came to the block.
func (s *stateSaver) save(b []byte, fl *follower, bs *blockState, home uint32) []byte {
	var flags byte
	set := func(f byte, is bool) {
		if is {
			flags |= f
		}
	}
	runs, fresh := s.asideRuns(fl)
	set(format.StateHasLossy, fl.lossy)
	set(format.StateHasTail, bs.tail)
	set(format.StateHasLeaf, bs.leaf)
	set(format.StateHasOver, fl.over != 0)
	set(format.StateHasNumber, bs.number != home)
	set(format.StateHasComm, bs.comm != s.comm)
	set(format.StateHasInherited, !sameCalls(fl.inherited, s.inherited))
	set(format.StateHasAside, len(runs) != 1 || runs[0] != [2]int{0, s.aside} || fresh < len(fl.aside))
	b = append(b, flags)
	b = binary.AppendUvarint(b, fl.now-s.now)
	s.now = fl.now
	b = binary.AppendUvarint(b, uint64(fl.credit))
	if flags&format.StateHasOver != 0 {
		b = binary.AppendUvarint(b, uint64(fl.over))
	}
	if flags&format.StateHasNumber != 0 {
		b = binary.AppendUvarint(b, uint64(bs.number))
	}
	if flags&format.StateHasComm != 0 {
		b = append(append(b, byte(len(bs.comm))), bs.comm...)
		s.comm = bs.comm
	}
	if flags&format.StateHasInherited != 0 {
		b = s.appendCalls(b, fl.inherited)
		s.inherited = fl.inherited
	}
	if flags&format.StateHasAside != 0 {
		b = s.appendAside(b, fl, runs, fresh)
	}
	return s.appendStacks(b, fl)
}

// asideRuns returns which of the frames that were aside are so still, as runs of
// positions then, and where those begin that have been put aside since.
func (s *stateSaver) asideRuns(fl *follower) (runs [][2]int, fresh int) {
	as := fl.aside
	fresh = sort.Search(len(as), func(i int) bool { return as[i].saved == 0 })
	for i := 0; i < fresh; {
		first := int(as[i].saved) - 1
		n := sort.Search(fresh-i, func(j int) bool { return int(as[i+j].saved)-1 != first+j })
		runs = append(runs, [2]int{first, n})
		i += n
	}
	if fresh == 0 && s.aside == 0 {
		runs = [][2]int{{0, 0}}
	}
	return runs, fresh
}

func (s *stateSaver) appendAside(b []byte, fl *follower, runs [][2]int, fresh int) []byte {
	b = binary.AppendUvarint(b, uint64(len(runs)))
	at := 0
	for _, r := range runs {
		b = binary.AppendUvarint(b, uint64(r[0]-at))
		b = binary.AppendUvarint(b, uint64(r[1]))
		at = r[0] + r[1]
	}
	b = binary.AppendUvarint(b, uint64(len(fl.aside)-fresh))
	last := fl.now
	for i := range fl.aside {
		f := &fl.aside[i]
		if i >= fresh {
			b = s.appendFrame(b, &f.frame, last)
			b = binary.AppendVarint(b, int64(f.end-f.start))
			last = f.start
			s.take(&f.frame)
		}
		f.saved = int32(i) + 1
	}
	s.aside = len(fl.aside)
	return b
}

func (s *stateSaver) appendStacks(b []byte, fl *follower) []byte {
	b = binary.AppendUvarint(b, fl.cur.num)
	var changed []*callStack
	look := func(st *callStack) {
		if old, ok := s.stacks[st.num]; st.changed(old, ok) {
			changed = append(changed, st)
		}
	}
	look(fl.cur)
	for _, st := range fl.stacks {
		look(st)
	}
	for num := range s.stacks {
		if num != fl.cur.num && fl.stacks[num] == nil {
			changed = append(changed, &callStack{num: num}) // empty by now
		}
	}
	slices.SortFunc(changed, func(a, b *callStack) int {
		if a.num < b.num {
			return -1
		}
		return 1
	})
	b = binary.AppendUvarint(b, uint64(len(changed)))
	for _, st := range changed {
		keep := kept(st.frames)
		b = binary.AppendUvarint(b, st.num)
		b = binary.AppendUvarint(b, uint64(keep))
		if keep > 0 {
			b = binary.AppendUvarint(b, st.frames[keep-1].self)
		}
		b = binary.AppendUvarint(b, uint64(len(st.frames)-keep))
		last := fl.now
		for i := keep; i < len(st.frames); i++ {
			f := &st.frames[i]
			b = s.appendFrame(b, f, last)
			last = f.start
			s.take(f)
		}
		if len(st.frames) == 0 && st.num != fl.cur.num {
			delete(s.stacks, st.num)
		} else {
			s.stacks[st.num] = savedStack{len(st.frames), topSelf(st.frames)}
		}
	}
	return b
}
