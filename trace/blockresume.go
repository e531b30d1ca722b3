package trace

import (
	"cmp"

	"github.com/fentry-dev/fentry/internal/format"
)

// A task of which an index has some blocks is gone on with from the state behind them.
// Besides that state, a builder knows in which block each open call began: where
// differences have it first.

// resume makes the blocks of a task that is in b.done, which has segments of it, but not the last one. The task must
// have inherited nothing, nor may others inherit from it.
func (b *blockBuilder) resume(k *Task, d *decoder) error {
	tb, err := b.done.states(k)
	if err != nil || len(tb.blocks) == 0 {
		return errBlocks
	}
	segments := b.done.tasks[k.Index]
	b.begin(newFollower(b, tb.blocks[0].due, k.Stack))
	b.setTask(k, k.chunks)
	b.later, b.crcTo, b.crc = true, tb.chunks, segments[len(segments)-1].chunksCRC
	bs := blockState{comm: tb.comm}
	if err := b.skip(tb, &bs); err != nil {
		return err
	}
	b.written = len(tb.blocks)
	b.opened(b.fl.cur)
	for _, st := range b.fl.stacks {
		b.opened(st)
	}
	b.comm, b.number, b.latest = bs.comm, bs.number, tb.blocks[len(tb.blocks)-1].hi
	b.saver = newStateSaver(b.fl, b.comm, b.numbering)
	d.chunks, d.number = k.chunks[tb.chunks:], bs.number
	var w word
	more := d.next(&w)
	if more {
		lo := min(b.fl.now, w.t)
		b.blocks = append(b.blocks, newBlock{chunk: tb.chunks, due: max(b.latest, w.t), lo: lo, hi: lo, flags: format.BlockPlain})
		b.number, b.words, b.left, d.commIsNew = d.number, 0, len(d.chunks), false
		b.gist.task(b.blocks[0].due)
		b.gist.bad = false // it is not the first one
		switch {
		case bs.tail:
			b.last = word{t: w.t, code: wExit}
		case bs.leaf:
			b.last = word{t: w.t, code: wEntry}
		default:
			b.last = word{code: wFork}
		}
	}
	for ; more && b.err == nil; more = d.next(&w) {
		b.take(d, &w, nil, nil)
	}
	if d.err == nil {
		b.finish()
	}
	return cmp.Or(b.err, d.err)
}

// opened counts the calls of a stack as open.
func (b *blockBuilder) opened(st *callStack) {
	for i := range st.frames {
		b.fns[b.number32(st.frames[i].fn)].active++
	}
}

// skip brings the follower behind the task's blocks.
func (b *blockBuilder) skip(tb *taskBlocks, bs *blockState) error {
	var fresh freshFrames
	watch := &stateWatch{
		aside: func(fs []suspendedFrame) {
			fresh = freshFrames{list: fs}
			for i := range fs {
				fs[i].ref = b.now
			}
		},
		cut: func(st *callStack, keep int) {
			for i := len(st.frames) - 1; i >= keep; i-- {
				if g := fresh.take(&st.frames[i]); g != nil {
					g.ref = st.frames[i].ref
				}
			}
		},
		changed: func(st *callStack, keep int) {
			for i := keep; i < len(st.frames); i++ {
				st.frames[i].ref = b.now
			}
		},
	}
	for i := range tb.blocks {
		fresh = freshFrames{}
		if tb.apply(b.fl, i+1, bs, watch) != nil {
			return errBlocks
		}
		b.now++
	}
	return nil
}
