package tracee

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Where there is room in a process for what is added to its program.
//
// A plan's own place is behind the program, as far as most heaps do not reach. The heap begins at a random distance (of up
// to a gigabyte from Linux 6.9), and grows. So the plan's place can be taken, or be in the way of a heap that grows; then
// there is room in front of the heap, where nothing is ever mapped, or far behind it. All of it is to be as close to the
// program as branches reach.

// A TakenError says that something is where a plan's memory was to be. The process was not changed. It can be tried again.
type TakenError struct {
	Room uint64 // where there is room for that of the program, as an address of it; 0: where it is planned, or who plans looks
	err  error
}

func (e *TakenError) Error() string { return e.err.Error() }
func (e *TakenError) Unwrap() error { return e.err }

const (
	programReach = 2<<30 - 64<<20 // from the program's beginning to the end of what is added, and what that may be more
	placeMargin  = 1 << 20        // on both sides, as a plan for another place can be a little larger
	heapGrowth   = 64 << 20       // what is left for the heap, if that can be had
)

// free returns an error if something is where an image's memory is to be: for the program a TakenError, if there is room
// elsewhere, and for a library. That is so, too, if the heap ends close below.
func (ts *threads) free(ms []mapping, im *image) error {
	lo, hi := im.added()
	var err error
	for _, m := range ms {
		if m.lo < hi && lo < m.hi {
			err = fmt.Errorf("it uses the memory where the tracer would be (%#x to %#x)", m.lo, m.hi)
			break
		}
	}
	switch {
	case im.library != nil && err != nil: // there was room for it a moment ago
		return &TakenError{0, err}
	case im.library != nil || err == nil && !heapBelow(ms, lo):
		return err
	}
	if at := ts.room(ms, im); at != 0 && at != lo {
		return &TakenError{at - im.bias, cmp.Or(err, fmt.Errorf("its heap ends close to where the tracer would be (%#x)", lo))}
	}
	return err
}

// heapBelow tells whether the heap would soon be at an address if it grows.
func heapBelow(ms []mapping, addr uint64) bool {
	for _, m := range ms {
		if m.path == "[heap]" && m.hi <= addr && addr-m.hi < heapGrowth {
			return true
		}
	}
	return false
}

// room finds room for what is added to the program; 0: there is none.
func (ts *threads) room(ms []mapping, im *image) uint64 {
	const align = 1 << 16
	lo, hi := im.added()
	size := hi - lo + 2*placeMargin
	entry := auxValue(ts.aux, atEntry)
	var first, end uint64 // of the program
	for i, m := range ms {
		if m.lo <= entry && entry < m.hi {
			_, file, _ := strings.Cut(m.key, " ")
			for first = m.lo; i > 0 && strings.HasSuffix(ms[i-1].key, " "+file); i-- {
				first = ms[i-1].lo
			}
			end = m.hi
		}
	}
	heap := ts.heap()
	for i, m := range append(slices.Clip(ms), mapping{lo: first + programReach, hi: first + programReach}) {
		if m.lo < end || i == 0 {
			continue
		}
		from, to := ms[i-1].hi, min(m.lo, first+programReach)
		if heap >= from && heap < to && ms[i-1].path != "[heap]" {
			to = heap // there is none yet
		}
		if to < from || to-from < size+align {
			continue
		}
		if ms[i-1].path != "[heap]" { // in the middle, as nothing grows there
			return (from + (to-from-size)/2 + placeMargin) &^ (align - 1)
		}
		if to-from >= size+align+heapGrowth {
			return (to - size + placeMargin - align) &^ (align - 1)
		}
	}
	return 0
}

// heap is where the heap begins; 0: that is not known.
func (ts *threads) heap() uint64 {
	const field = 47 // start_brk of proc_pid_stat(5)
	b, _ := os.ReadFile(procfs.Dir(ts.pid) + "/stat")
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < field-2 {
		return 0
	}
	at, _ := strconv.ParseUint(f[field-3], 10, 64)
	return at
}

// takenSince is for images whose memory was taken after it had been found free.
func (ts *threads) takenSince(images []*image, err error) error {
	ms, merr := ts.maps()
	if merr != nil {
		return merr
	}
	for _, im := range images {
		if im.library == nil {
			if lo, at := im.bias+im.m.RWAddr, ts.room(ms, im); at != 0 && at != lo {
				return &TakenError{at - im.bias, err}
			}
		}
	}
	return &TakenError{0, err}
}
