package view

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/fentry-dev/fentry/trace"
)

// A timeline is drawn from tiles: 512 units of time of one task, a unit being a power of two of nanoseconds. A page
// takes the power whose unit is at most as wide as a column of the screen. So what it has drawn serves again when it
// pans, and what others have asked for when it comes back; and a tile can say at most so much, however much happened
// in it.
//
// Calls as long as a unit are told one by one. Shorter ones are merged, by row and unit: how many, from when to when,
// and which function took most. Where they come from depends on how much of the index's blocks is in a tile:
//
//   - few blocks: they are decoded. Nothing is missing.
//   - many: what crosses the borders of blocks comes from the outline; of the blocks, those are decoded that are so
//     long that a call inside could be seen well. What is missing is shorter than four units, and samples of it are
//     there: the calls that were open at the borders.
//
// A block with an entry that was written late is as long as if it had begun with that; of these at most 128 are decoded.
// So a tile costs the decoding of at most 256 blocks or so, whatever it spans; most cost much less. That is still a
// tenth of a second, and a hand on the wheel is faster. So a page first asks for what can be had at once, which is
// the outline alone where there is more than a little to decode, and then for the rest.

const (
	tileUnits  = 512
	tileLevels = 45  // the unit of the last one is five hours, its tile a hundred days
	maxRows    = 256 // calls that are deeper are counted, not told
	maxLanes   = 32  // stacks of a task
	maxBoxes   = 40_000

	fewBlocks = 128 // are decoded whatever their length, or whatever was written late
	atOnce    = 4   // are decoded before anything is answered
	wellSeen  = 4   // units
	maxNotes  = 512
	noteBytes = 200
)

// A Tile is what happened in a task in tileUnits units of time.
type Tile struct {
	Start int64  `json:"start"` // in ns since the trace's start
	Unit  int64  `json:"unit"`  // ns
	Funcs []Func `json:"funcs"`
	Boxes Boxes  `json:"boxes"`
	Notes []Note `json:"notes"`
	// Rows is the number of rows of each lane as far as the tile knows: lanes are the stacks of the task, by appearance.
	Rows []int `json:"rows"`
	// Deeper calls than maxRows there are, rows that did not fit, or blocks that were not decoded because too many have
	// entries that were written late: the page says so.
	Deeper int `json:"deeper,omitempty"`
	// Partial: it has what could be had at once.
	Partial bool `json:"partial,omitempty"`
}

// A Box is a call, or several short ones of the same row.
type Box struct {
	Lane, Row  int
	Start, End int64 // in ns since the trace's start; a call can reach out of the tile
	Func       int   // position in Tile.Funcs; of several calls, the one that took most time
	Calls      int   // 0: some, of which only samples are known
	Kind       trace.Kind
}

// Boxes are boxes of a tile.
type Boxes []Box

// MarshalJSON writes each box as an array, with its duration in place of its end: there are thousands.
func (bs Boxes) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 40*len(bs)+2), '[')
	for i := range bs {
		b := &bs[i]
		if i > 0 {
			out = append(out, ',')
		}
		begin := byte('[')
		for _, n := range [...]int64{
			int64(b.Lane), int64(b.Row), b.Start, b.End - b.Start, int64(b.Func), int64(b.Calls), int64(b.Kind),
		} {
			out = strconv.AppendInt(append(out, begin), n, 10)
			begin = ','
		}
		out = append(out, ']')
	}
	return append(out, ']'), nil
}

// Tile returns a tile of a task. level is the power of two of its unit. quick: it may be partial.
func (v *Viewer) Tile(task, level int, index int64, quick bool) (*Tile, error) {
	k := v.t.Tasks[task]
	o := v.outline(k)
	unit := int64(1) << level
	b := &tileBuilder{
		v: v, task: k, unit: unit, from: index * unit * tileUnits, to: (index + 1) * unit * tileUnits,
		funcs: funcNumbers{v: v}, lanes: map[uint64]int{}, quick: quick,
	}
	b.lane(k.Stack)
	var err error
	if o == nil {
		err = b.decode()
	} else {
		err = b.fromOutline(o)
	}
	if err != nil {
		return nil, err
	}
	return b.tile(), nil
}

// A place is where calls are drawn.
type place struct{ lane, row int }

// A row has the calls of one place.
type row struct {
	long  []Box
	cells *[tileUnits]cell
}

// A cell is the short calls that begin in one unit.
type cell struct {
	calls  int
	lo, hi int64
	most   int64
	fn     trace.FuncID
}

// A call is one that is drawn.
type call struct {
	fn         trace.FuncID
	start, end int64
	stack      uint64
	depth      int32
	kind       trace.Kind
}

// A callKey is what tells a call from others of the task.
type callKey struct {
	fn    trace.FuncID
	start int64
	stack uint64
	depth int32
}

type tileBuilder struct {
	v        *Viewer
	task     *trace.Task
	unit     int64
	from, to int64 // of the tile
	funcs    funcNumbers
	rows     [][]*row       // by lane and row; nil: there is nothing
	lanes    map[uint64]int // by stack
	latest   struct {       // of lanes, the one that was asked for last
		stack uint64
		lane  int
	}
	depths []int // rows of each lane
	notes  []Note
	noted  int64 // the unit of the last note
	deeper int

	quick, partial bool
}

// lane returns the lane of a stack; -1: there are too many.
func (b *tileBuilder) lane(stack uint64) int {
	if b.latest.stack == stack && len(b.lanes) > 0 {
		return b.latest.lane
	}
	i, ok := b.lanes[stack]
	if !ok {
		if len(b.lanes) == maxLanes {
			return -1
		}
		i = len(b.lanes)
		b.lanes[stack] = i
		b.depths = append(b.depths, 0)
		b.rows = append(b.rows, nil)
	}
	b.latest.stack, b.latest.lane = stack, i
	return i
}

// fromOutline fills the tile from the outline, and from those blocks that are worth decoding.
func (b *tileBuilder) fromOutline(o *trace.Outline) error {
	for i := range o.Calls { // all stacks, so that lanes are the same in every tile
		b.lane(o.Calls[i].Stack)
	}
	runs := b.worthDecoding(o)
	b.partial = b.quick && b.v.blocks.missing(b.task.Index, runs) > atOnce
	if b.partial {
		runs = nil
	}
	for i := range o.Calls {
		c := &o.Calls[i]
		if c.Func == (trace.FuncID{}) || c.Start >= b.to || c.End < b.from {
			continue
		}
		b.add(&call{c.Func, c.Start, c.End, c.Stack, c.Depth, c.Kind})
	}
	return b.v.eachBlock(b.task.Index, runs, b.block)
}

// worthDecoding returns those of the blocks that are to be decoded, as runs.
func (b *tileBuilder) worthDecoding(o *trace.Outline) (runs [][2]int) {
	for i := range len(o.Borders) - 1 {
		if b.overlaps(o, i) {
			runs = append(runs, [2]int{i, i + 1})
		}
	}
	if len(runs) > fewBlocks {
		runs = slices.DeleteFunc(runs, func(run [2]int) bool { return !b.longBlock(o, run[0]) })
		runs = b.withoutMostLate(o, runs)
	}
	return runs
}

// withoutMostLate takes out blocks that are long only because of an entry that was written late, if there are many:
// those stay that reach furthest into the tile. Of the others there are no more than the tile has room for.
func (b *tileBuilder) withoutMostLate(o *trace.Outline, runs [][2]int) [][2]int {
	var late []int
	for _, run := range runs {
		if o.Borders[run[1]].Time-o.Borders[run[0]].Time < wellSeen*b.unit {
			late = append(late, run[0])
		}
	}
	if len(late) <= fewBlocks {
		return runs
	}
	reach := func(i int) int64 { // how much of the tile is between the late entry and the block
		return min(o.Borders[i].Time, b.to) - max(o.Borders[i].First, b.from)
	}
	slices.SortStableFunc(late, func(x, y int) int { return cmp.Compare(reach(y), reach(x)) })
	out := map[int]bool{}
	for _, i := range late[fewBlocks:] {
		out[i] = true
	}
	b.deeper += len(out)
	return slices.DeleteFunc(runs, func(run [2]int) bool { return out[run[0]] })
}

// overlaps tells whether a block can have something of the tile.
func (b *tileBuilder) overlaps(o *trace.Outline, i int) bool {
	at := &o.Borders[i]
	return at.First < b.to && max(at.Last, o.Borders[i+1].Time) >= b.from
}

// longBlock tells whether calls inside of a block can be seen well.
func (b *tileBuilder) longBlock(o *trace.Outline, i int) bool {
	return o.Borders[i+1].Time-o.Borders[i].First >= wellSeen*b.unit
}

// decode adds what all events of the task tell: the trace has no index.
func (b *tileBuilder) decode() error {
	f := callFinder{all: true}
	return b.v.t.Walk(trace.WalkOptions{Tasks: []*trace.Task{b.task}}, func(ev *trace.Event) error {
		if c, ok := f.take(ev); ok {
			b.add(&c)
		} else {
			b.note(ev)
		}
		return nil
	})
}

// block adds what a block has.
func (b *tileBuilder) block(i int, in *block) error {
	for n := range in.calls {
		b.add(&in.calls[n])
	}
	if in.crowded {
		return b.v.t.WalkBlock(b.task, i, func(ev *trace.Event) error {
			b.note(ev)
			return nil
		})
	}
	for _, n := range in.notes {
		if b.hasRoom(n.Time) {
			b.notes = append(b.notes, n)
		}
	}
	return nil
}

func (c *call) key() callKey { return callKey{c.fn, c.start, c.stack, c.depth} }

// add draws a call.
func (b *tileBuilder) add(c *call) {
	long := c.end-c.start >= b.unit
	if c.start >= b.to || c.end < b.from || !long && c.start < b.from {
		return
	}
	lane, depth := b.lane(c.stack), int(c.depth)
	if lane < 0 || depth >= maxRows {
		b.deeper++
		return
	}
	b.depths[lane] = max(b.depths[lane], depth+1)
	for len(b.rows[lane]) <= depth {
		b.rows[lane] = append(b.rows[lane], nil)
	}
	r := b.rows[lane][depth]
	if r == nil {
		r = &row{}
		b.rows[lane][depth] = r
	}
	if long {
		r.long = append(r.long, Box{lane, depth, c.start, c.end, b.funcs.of(c.fn), 1, c.kind})
		return
	}
	if r.cells == nil {
		r.cells = new([tileUnits]cell)
	}
	e := &r.cells[(c.start-b.from)/b.unit]
	if e.calls == 0 {
		e.lo, e.most = math.MaxInt64, -1
	}
	e.calls++
	e.lo, e.hi = min(e.lo, c.start), max(e.hi, c.end)
	if d := c.end - c.start; d > e.most {
		e.most, e.fn = d, c.fn
	}
}

// note takes what is no call, one of each unit.
func (b *tileBuilder) note(ev *trace.Event) {
	if isNote(ev) && b.hasRoom(ev.Time) {
		b.notes = append(b.notes, b.v.noteOf(ev))
	}
}

// hasRoom tells whether the tile takes a note of a time.
func (b *tileBuilder) hasRoom(at int64) bool {
	if at < b.from || at >= b.to || len(b.notes) >= maxNotes {
		return false
	}
	unit := (at-b.from)/b.unit + 1
	is := unit != b.noted
	b.noted = unit
	return is
}

// tile makes the tile.
func (b *tileBuilder) tile() *Tile {
	t := &Tile{Start: b.from, Unit: b.unit, Rows: b.depths, Notes: b.notes, Boxes: []Box{}, Deeper: b.deeper}
	t.Partial = b.partial
	if t.Notes == nil {
		t.Notes = []Note{}
	}
	for depth := range maxRows {
		for lane := range b.depths {
			if depth >= len(b.rows[lane]) || b.rows[lane][depth] == nil {
				continue
			}
			r := b.rows[lane][depth]
			if len(t.Boxes) > maxBoxes {
				t.Deeper++
				continue
			}
			t.Boxes = append(t.Boxes, r.long...)
			if r.cells != nil {
				t.Boxes = b.merge(t.Boxes, place{lane, depth}, r.cells)
			}
		}
	}
	sortBoxes(t.Boxes)
	t.number(b.funcs.list)
	return t
}

// number gives functions numbers in the order of the boxes, so that a tile does not tell how it came about.
func (t *Tile) number(list []Func) {
	t.Funcs = make([]Func, 0, len(list))
	numbers := make([]int, len(list)) // 0: none yet
	for i := range t.Boxes {
		n := &numbers[t.Boxes[i].Func]
		if *n == 0 {
			t.Funcs = append(t.Funcs, list[t.Boxes[i].Func])
			*n = len(t.Funcs)
		}
		t.Boxes[i].Func = *n - 1
	}
}

// merge appends the short calls of a row: those of neighbouring units together if it is the same function that took
// most of both.
func (b *tileBuilder) merge(boxes []Box, at place, cells *[tileUnits]cell) []Box {
	var now *cell
	put := func() {
		if now != nil {
			boxes = append(boxes, Box{at.lane, at.row, now.lo, now.hi, b.funcs.of(now.fn), now.calls, trace.Exit})
		}
	}
	for i := range cells {
		e := &cells[i]
		switch {
		case e.calls == 0:
		case now != nil && now.fn == e.fn && e.lo-now.hi < b.unit:
			now.calls += e.calls
			now.hi = max(now.hi, e.hi)
		default:
			put()
			now = e
		}
	}
	put()
	return boxes
}

var _ json.Marshaler = Boxes{}
