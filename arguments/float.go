package arguments

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Numbers of floating point, of all sizes that programs pass: Go has two of them.

func (s *shower) floats(t *Type, b []byte) {
	if t.Kind == Complex {
		half := &Type{Kind: Float, Size: t.Size / 2}
		if t.Size == 32 {
			half.Kind = LongDouble
		}
		if t.Size/2 > len(b) {
			s.unknown()
			return
		}
		re, ok := float(half, b)
		im, ok2 := float(half, b[t.Size/2:])
		if !ok || !ok2 {
			s.unknown()
			return
		}
		text := strconv.FormatFloat(re, 'g', -1, precision(half))
		if im >= 0 || math.IsNaN(im) {
			text += "+"
		}
		s.name(text + strconv.FormatFloat(im, 'g', -1, precision(half)) + "i")
		return
	}
	f, ok := float(t, b)
	if !ok {
		s.unknown()
		return
	}
	if s.json && (math.IsNaN(f) || math.IsInf(f, 0)) {
		s.name(strconv.FormatFloat(f, 'g', -1, 64))
		return
	}
	s.b = strconv.AppendFloat(s.b, f, 'g', -1, precision(t))
}

// precision is how many bits a number is shown with.
func precision(t *Type) int {
	if t.Size <= 4 {
		return 32
	}
	return 64
}

// float reads a number; what does not fit into a float64 is rounded.
func float(t *Type, b []byte) (float64, bool) {
	if len(b) < t.Size {
		return 0, false
	}
	switch {
	case t.Kind == LongDouble && t.Size >= 10:
		m, e := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint16(b[8:])
		sign := 1.0
		if e>>15 != 0 {
			sign = -1
		}
		switch e &= 0x7fff; {
		case e == 0x7fff && m<<1 == 0:
			return math.Inf(int(sign)), true
		case e == 0x7fff:
			return math.NaN(), true
		}
		return sign * math.Ldexp(float64(m), int(e)-16383-63), true
	case t.Size == 8:
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	case t.Size == 4:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case t.Size == 2:
		h := binary.LittleEndian.Uint16(b)
		return scaled(uint64(h>>15), int(h>>10&0x1f), 0x1f, 15, float64(h&0x3ff)/(1<<10)), true
	case t.Size == 16:
		low, high := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		fraction := float64(high&(1<<48-1))/(1<<48) + float64(low)/(1<<48)/(1<<32)/(1<<32)
		return scaled(high>>63, int(high>>48&0x7fff), 0x7fff, 16383, fraction), true
	}
	return 0, false
}

// scaled makes a number of the parts of an IEEE 754 one.
func scaled(sign uint64, e, top, bias int, fraction float64) float64 {
	var f float64
	switch {
	case e == top && fraction == 0:
		f = math.Inf(1)
	case e == top:
		f = math.NaN()
	case e == 0:
		f = math.Ldexp(fraction, 1-bias)
	default:
		f = math.Ldexp(1+fraction, e-bias)
	}
	if sign != 0 {
		f = -f
	}
	return f
}
