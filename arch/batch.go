package arch

// Batch changes many sites together: all of them or none.
type Batch struct {
	Ftrace  Ftrace
	Changes []Change
}

// Add adds a change to the batch.
func (b *Batch) Add(c Change) { b.Changes = append(b.Changes, c) }

// Verify checks every site and returns what Run would write, sorted by address. It stops with a *Bug at the first
// site that does not match, or with an error if two changes overlap. It writes nothing.
func (b *Batch) Verify(mem Memory) ([]Edit, error) {
	edits := make([]Edit, 0, len(b.Changes))
	for _, c := range b.Changes {
		e, err := Prepare(b.Ftrace, mem, c)
		if err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
	return edits, Sort(edits)
}

// Run verifies every site and then writes all of them in address order, each on its
// own, as [Write] does.
func (b *Batch) Run(mem Memory) error {
	edits, err := b.Verify(mem)
	if err != nil {
		return err
	}
	return Write(mem, 0, edits)
}

// Do verifies and writes a single change.
func Do(f Ftrace, mem Memory, c Change) error {
	e, err := Prepare(f, mem, c)
	if err != nil {
		return err
	}
	return Write(mem, 0, []Edit{e})
}
