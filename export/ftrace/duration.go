package ftrace

import "strconv"

// Thresholds of the marks, in ns: a longer call has the mark.
var marks = [...]struct {
	over int64
	mark byte
}{
	{1_000_000_000, '$'},
	{100_000_000, '@'},
	{10_000_000, '*'},
	{1_000_000, '#'},
	{100_000, '!'},
	{10_000, '+'},
}

func mark(ns int64) byte {
	if ns <= 10_000 {
		return ' '
	}
	for _, m := range marks {
		if ns > m.over {
			return m.mark
		}
	}
	return ' '
}

// appendNumber appends a duration in microseconds: at most 7 digits, of which
// up to 3 behind the point, and more only where the integer has more.
func appendNumber(b []byte, ns int64) []byte {
	us, rem := uint64(ns)/1000, uint64(ns)%1000
	start := len(b)
	b = appendUint(b, us)
	digits := len(b) - start
	if digits >= 7 {
		return b
	}
	b = append(b, '.', byte('0'+rem/100))
	if digits < 6 {
		b = append(b, byte('0'+rem/10%10))
	}
	if digits < 5 {
		b = append(b, byte('0'+rem%10))
	}
	return b
}

// AppendDuration appends a duration in ns with its unit, filled to 12 columns:
// the column between the mark and the bar.
func AppendDuration(b []byte, ns int64) []byte {
	start := len(b)
	b = appendNumber(b, max(ns, 0))
	n := len(b) - start
	b = append(b, " us "...)
	for ; n < 8; n++ {
		b = append(b, ' ')
	}
	return b
}

// appendUint is strconv.AppendUint with a short way for what is most frequent.
func appendUint(b []byte, v uint64) []byte {
	if v < 10 {
		return append(b, byte('0'+v))
	}
	return strconv.AppendUint(b, v, 10)
}

// appendPadded appends v with at least width columns, filled with pad at the left.
func appendPadded(b []byte, v uint64, width int, pad byte) []byte {
	var tmp [20]byte
	d := strconv.AppendUint(tmp[:0], v, 10)
	for n := len(d); n < width; n++ {
		b = append(b, pad)
	}
	return append(b, d...)
}

// appendTime appends a time in ns as seconds in 5 columns and microseconds.
func appendTime(b []byte, ns int64) []byte {
	if ns < 0 {
		ns = 0 // before the trace's start: an event that raced with it
	}
	b = appendPadded(b, uint64(ns)/1e9, 5, ' ')
	b = append(b, '.')
	return appendPadded(b, uint64(ns)/1000%1e6, 6, '0')
}

var blanks = [...]byte{
	' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ',
	' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ',
	' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ',
	' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ', ' ',
}

func appendBlanks(b []byte, n int) []byte {
	for n > len(blanks) {
		b = append(b, blanks[:]...)
		n -= len(blanks)
	}
	return append(b, blanks[:max(n, 0)]...)
}
