package plain

// walk follows control through a function from its first byte, and from where anything else enters it: what is reached is
// code. If it gets to a byte that is no instruction, or into the middle of one, nothing in the function is what it seems.
type walk struct {
	f     *Finder
	i     int // of the function
	start uint64
	b     []byte
	seen  []bool // where an instruction begins that has been reached
	todo  []int
	next  func(at int) (step, bool) // decodes the instruction at an offset; false: there is none
}

// step is where an instruction leads.
type step struct {
	n      int    // its length
	to     uint64 // where it branches to, calls apart; 0: nowhere
	ends   bool   // what is behind it is not reached from it
	isData bool   // what to is the address of is data
}

func newWalk(f *Finder, i int, b []byte) walk {
	return walk{f: f, i: i, start: f.funcs[i].Addr, b: b, seen: make([]bool, len(b))}
}

// syscall is the system call at an offset, which judge decides about if the walk was sound and has come there.
func (w *walk) syscall(at int, sound bool, judge func(*Syscall)) Syscall {
	s := Syscall{Addr: w.start + uint64(at), Func: w.i, Number: Unknown, Refusal: Unreached}
	if sound && w.seen[at] {
		s.Refusal = ""
		judge(&s)
	}
	return s
}

// walk reports whether all that is reached is instructions. What comes from outside, or from a table, begins in
// the middle.
func (w *walk) walk() bool {
	w.todo = append(w.todo[:0], 0)
	for at := range w.b {
		const outside = otherBranch | tailJump | called | landingPad | tableEntry
		if w.f.marks.get(w.start+uint64(at))&outside != 0 {
			w.todo = append(w.todo, at)
		}
	}
	var data []uint64
	for len(w.todo) > 0 {
		at := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if !w.path(at, &data) {
			return false
		}
	}
	end := 0
	for at, s := range w.seen {
		if !s {
			continue
		}
		in, ok := w.next(at)
		if !ok || at < end {
			return false
		}
		end = at + in.n
	}
	for _, at := range data {
		if w.seen[at] {
			return false
		}
	}
	return true
}

// path follows control from an instruction on, until it ends or is where it has been.
func (w *walk) path(at int, data *[]uint64) bool {
	for at < len(w.b) && !w.seen[at] {
		in, ok := w.next(at)
		if !ok {
			return false
		}
		w.seen[at] = true
		if t := in.to - w.start; in.to != 0 && t < uint64(len(w.b)) {
			if in.isData {
				*data = append(*data, t)
			} else {
				w.todo = append(w.todo, int(t))
			}
		}
		if in.ends {
			return true
		}
		at += in.n
	}
	return true
}
