package trace

import "encoding/binary"

// With a threshold, nearly all calls that are decoded are too short to count. What a sink
// notes of a call when it begins, it takes back then, which costs more than decoding it. So in
// a block, calls are entered late: when one that is long enough ends, it is entered, and those
// around it before. What has begun and ended meanwhile leaves nothing behind, so the sink is
// told what it would have been told in time, but for the short calls. All that is not an entry,
// or the exit of the innermost call, finds the calls entered.
//
// Short calls that nobody has seen are no nodes of a graph, so there must be room for them, as
// for those in blocks that are left out (shortpaths.go).

// late says that the calls of block i, which is wanted, can be entered late.
func (s *chosenSink) late(i int, short *shortCalls) (bool, error) {
	if s.least == 0 || s.before || s.tb.blocks[i].hi > s.to || s.calls.Nest {
		return false, nil
	}
	if c, ok := counting(s).(interface{ asksForWaits() bool }); ok && c.asksForWaits() {
		return false, nil // the sink notes when it is told
	}
	if short == nil {
		return true, nil
	}
	return short.known(i)
}

// feedLate takes the words of the decoder's chunks, all of which are in the window, and enters calls late.
func (s *chosenSink) feedLate(d *decoder) {
	fl := s.fl
	s.entered = len(fl.cur.frames)
	var w word
	for {
		s.feedCalls(d)
		if !d.next(&w) {
			break
		}
		s.enterLate(len(fl.cur.frames))
		fl.step(&w)
		s.entered = len(fl.cur.frames)
	}
	s.enterLate(len(fl.cur.frames))
}

// enterLate enters the outermost n calls of the current stack, as far as they are not.
func (s *chosenSink) enterLate(n int) {
	st := s.fl.cur
	fs := st.frames
	for ; s.entered < n; s.entered++ {
		st.frames = fs[:s.entered+1]
		s.enter(&fs[s.entered])
	}
	st.frames = fs
}

// feedCalls takes entries, and exits of innermost calls, as far as they follow each other in the decoder's window. It
// does what decoder.next and follower.step do, for these alone.
func (s *chosenSink) feedCalls(d *decoder) {
	fl := s.fl
	if fl.over > 0 || d.entry != wEntry {
		return
	}
	win, at, high, last, ids := d.win, d.at, d.high, d.last, d.span
	fs, now, credit := fl.cur.frames, fl.now, fl.credit
	most := maxOpen - fl.open
	for at+8 <= len(win) {
		v := binary.LittleEndian.Uint64(win[at:])
		t, id := high|v&0xffffffff, uint32(v>>32)
		fn := id &^ (1 << 31)
		if t-last >= 1<<31 && t > last || t < fl.forked {
			break
		}
		if fn-ids.lo >= ids.n {
			if v == 0 || !d.resolve(fn) || d.entry != wEntry {
				break
			}
			ids = d.span
		}
		fn -= ids.base
		n := len(fs)
		var top *frame
		if n > 0 {
			top = &fs[n-1]
		}
		if id>>31 == 0 && n >= most || id>>31 != 0 && (top == nil || top.fn != FuncID{ids.image, fn}) {
			break
		}
		at, last = at+8, t
		if t > now {
			if top != nil {
				top.self += t - now
			}
			now = t
		}
		if id>>31 == 0 {
			credit += searchEarned
			if n == cap(fs) {
				fs = append(fs, frame{})
			}
			fs = fs[:n+1]
			top = &fs[n]
			top.start, top.self, top.ref, top.flags, top.depth = t, 0, 0, 0, 0
			top.fn.Image, top.fn.ID = ids.image, fn
			continue
		}
		if n-1 >= s.entered && t-min(t, top.start) < s.least {
			fs = fs[:n-1]
			continue
		}
		fl.t, fl.cur.frames = t, fs
		s.enterLate(n)
		fs = fs[:n-1]
		fl.cur.frames, s.entered = fs, n-1
		s.leave(top, t, endExit)
	}
	d.at, d.last = at, last
	fl.t, fl.cur.frames, fl.now, fl.credit = last, fs, now, credit
}
