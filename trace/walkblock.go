package trace

// WalkBlock calls fn with the events of a block of a task, in the order in which they were written: those between a
// border of its [Outline] and the next one. So of two blocks none has an event of the other, though they can have the
// same time. The Event is valid only during the call. An error of fn ends the walk and is returned.
func (t *Trace) WalkBlock(k *Task, i int, fn func(*Event) error) error {
	if t.blocks == nil {
		return errBlocks
	}
	tb, err := t.blocks.states(k)
	if err != nil {
		return err
	}
	if i < 0 || i >= len(tb.blocks) {
		return errBlocks
	}
	w := t.emptyWalker(1)
	w.pending = []pending{{k, tb.blocks[i].due, fn, &part{taskBlocks: tb, runs: [][2]int{{i, i + 1}}, stop: i + 1}}}
	return w.run(0)
}
