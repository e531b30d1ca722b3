package patch

import (
	"fmt"
)

// The writer fills the rooms that the layout has reserved. What has a part for every function is written function by
// function, or for those of the first ids, on all processors: thunks, rows of the table of sites, and the new bytes of sites.

// write fills all pieces and windows.
func (l *layout) write() error {
	var parts []*piece
	for i := range l.pieces {
		switch pc := &l.pieces[i]; {
		case pc.part != nil:
			parts = append(parts, pc)
		case pc.ready != nil:
			copy(l.in(pc), pc.ready)
			pc.used = uint64(len(pc.ready))
		case pc.write != nil:
			if err := l.fill(pc); err != nil {
				return err
			}
		}
	}
	return l.writeFunctions(parts)
}

// fill writes a piece.
func (l *layout) fill(pc *piece) error {
	var room []byte
	if l.inCode(pc) {
		w := l.windowOf(pc)
		if w == nil || uint64(w.n) != pc.size {
			return nil // as will be found
		}
		room = l.after[w.at:][:w.n:w.n]
	} else {
		room = l.in(pc)
	}
	b, err := pc.write(room[:0])
	if err != nil {
		return fmt.Errorf("%s: %w", l.ownerName(pc), err)
	}
	pc.used = uint64(len(b))
	return nil
}

// ownerName is whom a piece serves, for errors.
func (l *layout) ownerName(pc *piece) string {
	if pc.owner == nobody {
		return pc.name
	}
	fn := &l.p.Functions[pc.owner]
	return fmt.Sprintf("%s at %#x", fn.Display(), fn.Addr)
}

// writeFunctions writes what has a part for each function.
func (l *layout) writeFunctions(parts []*piece) error {
	p := l.p
	rooms := make([][]byte, len(parts))
	each := make([]int, len(parts))
	for k, pc := range parts {
		rooms[k], each[k] = l.in(pc), int(pc.size)/max(pc.parts, 1)
	}
	tasks := (len(p.Functions) + perTask - 1) / perTask
	used := make([]uint64, tasks*len(parts))
	err := p.overFunctions(func(from, to int) error {
		used := used[from/perTask*len(parts):][:len(parts)]
		for i := from; i < to; i++ {
			fn := &p.Functions[i]
			if fn.Action == Leave {
				continue
			}
			r := route{}
			if fn.ID != 0 {
				r = l.route(i)
			}
			if err := l.writeSite(i, r); err != nil {
				return err
			}
			if fn.ID == 0 {
				continue
			}
			for k, pc := range parts {
				if int(fn.ID) > pc.parts {
					continue
				}
				at := int(fn.ID-1) * each[k]
				n, err := pc.part(fn, r, rooms[k][at:at+each[k]])
				if err != nil {
					return fmt.Errorf("%s at %#x: %w", fn.Display(), fn.Addr, err)
				}
				used[k] += uint64(n)
			}
		}
		return nil
	})
	for i, n := range used {
		parts[i%len(parts)].used += n
	}
	return err
}

// writeSite writes the new bytes of the i-th function's site: what leads to its thunk, or nops.
func (l *layout) writeSite(i int, r route) error {
	fn := &l.p.Functions[i]
	for _, w := range l.windowsOf(fn) {
		b, err := l.after[w.at:w.at:w.at+uint32(w.n)], error(nil)
		switch w.purpose {
		case ToThunk, ToSwap:
			b, err = l.p.m.appendSite(b, fn.Site, r)
		case ToNop:
			b = l.p.m.appendNops(b, int(w.n))
		case ToMoved:
			b = append(b, l.movedNew(i, &w)...)
		case ToCall:
			b, err = l.displacer.appendWordCall(b, l.before[w.at:], w.addr, r.to)
		default:
			continue // a piece
		}
		if err != nil {
			return fmt.Errorf("%s: site %#x: %w", fn.Display(), w.addr, err)
		}
		if len(b) != int(w.n) {
			return internalf("%s: site %#x: %d bytes for a site of %d", fn.Display(), w.addr, len(b), w.n)
		}
	}
	return nil
}

// writeThunk writes the thunk of a function.
func (l *layout) writeThunk(fn *Func, r route, dst []byte) (int, error) {
	err := l.p.m.thunk(l.parts(fn, r), dst)
	if err == nil && fn.inThunk {
		_, err = l.putDisplaced(fn, dst)
	}
	return l.thunkSize, err
}

// writeBack writes what it has apart.
func (l *layout) writeBack(fn *Func, r route, dst []byte) (int, error) {
	return l.backSize, l.p.m.back(l.parts(fn, r), dst)
}

// parts says what the thunk of a function is made of.
func (l *layout) parts(fn *Func, r route) *thunk {
	k := l.p.flavour().thunk(fn.Site)
	addr, switched := l.thunk(fn.ID), l.switches+uint64(fn.ID-1)
	if fn.role == swapping {
		switched = addr + l.p.m.facts().odd
	}
	return &thunk{
		addr: addr, back: l.back(fn.ID), switched: switched, enterExit: l.routines[fn.role][k],
		body: r.body, id: fn.ID, frame: fn.Frame, kind: k, size: l.thunkSize,
	}
}
