package record

import (
	"math"

	"github.com/fentry-dev/fentry/elfio"
)

// System calls that are kept, as sites are (kept.go): to find them takes as long, and they are few.

// leastSyscall is fewer bytes than any system call takes, and leastMove than any way to move it.
const leastSyscall, leastMove = 9, 3

// AppendSyscalls appends system calls of an image in the form that [ReadSyscalls] reads.
func AppendSyscalls(b []byte, calls []Syscall) []byte {
	w := keptWriter{b: b, start: len(b), words: map[string]int{}}
	w.number(uint64(len(calls)))
	last := uint64(0)
	for i := range calls {
		s := &calls[i]
		w.signed(s.Addr - last)
		last = s.Addr
		w.signed(s.Func - s.Addr)
		w.text(s.Name)
		w.signed(uint64(s.Number))
		w.number(uint64(len(s.Moves)))
		for _, m := range s.Moves {
			w.signed(m.Addr - s.Addr)
			w.number(uint64(m.Len))
			w.number(uint64(m.Code))
		}
		w.word(string(s.Reason))
		w.number(s.Routine)
		w.number(uint64(s.Cancelled))
		w.flags(s.Go)
	}
	return w.end()
}

// ReadSyscalls returns the system calls of an image that [AppendSyscalls] has appended to nothing. It returns an error
// for other bytes, and for those of an image that does not have the addresses; it does not find out whether they were
// made for this image.
func ReadSyscalls(f *elfio.File, b []byte) ([]Syscall, error) {
	r, err := newKeptReader(b)
	if err != nil {
		return nil, err
	}
	count := r.count(leastSyscall)
	var calls []Syscall
	last := uint64(0)
	for range count {
		s := Syscall{Addr: last + uint64(r.signed())}
		last = s.Addr
		s.Func, s.Name = s.Addr+uint64(r.signed()), r.text()
		s.Number = int(r.signed())
		for range r.count(leastMove) {
			m := Move{Addr: s.Addr + uint64(r.signed()), Len: int(r.number(math.MaxInt32))}
			m.Code = int(r.number(uint64(m.Len)))
			s.Moves = append(s.Moves, m)
		}
		s.Reason = Reason(r.word())
		s.Routine, s.Cancelled = r.number(math.MaxUint64), uint32(r.number(math.MaxUint32))
		r.flags(&s.Go)
		if r.bad {
			return nil, errKept
		}
		if _, err := f.Bytes(s.Addr, 1); err != nil {
			return nil, err
		}
		for _, m := range s.Moves {
			if _, err := f.Bytes(m.Addr, m.Len); err != nil {
				return nil, err
			}
		}
		calls = append(calls, s)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return calls, nil
}
