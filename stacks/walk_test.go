//go:build linux

package stacks

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// made is a stack that a test has made: rows by address, and memory.
type made struct {
	rows  map[uint64][]byte // call frame instructions
	words map[uint64]uint64
}

func (m *made) row(pc uint64) *ehframe.Frame {
	code, ok := m.rows[pc&^0xfff]
	if !ok {
		return nil
	}
	cie := &ehframe.CIE{CodeAlign: 1, DataAlign: -8, RetReg: 16, Instructions: []byte{0x0c, 7, 8, 0x90, 1}}
	d := ehframe.FDE{PC: pc &^ 0xfff, Size: 0x1000, CIE: cie, Instructions: code}
	row, err := d.FrameAt(pc)
	if err != nil {
		return nil
	}
	return &row
}

func (m *made) read(addr uint64, _ int) (uint64, error) {
	v, ok := m.words[addr]
	if !ok {
		return 0, errors.New("not mapped")
	}
	return v, nil
}

func (m *made) near(a, b uint64) bool { return a>>16 == b>>16 }

// TestEnds has a stack for every way to end. Register 6 is rbp, 7 rsp, 3 rbx, 16 the return address.
func TestEnds(t *testing.T) {
	def := func(reg, off byte) []byte { return []byte{0x0c, reg, off} }
	words := func(w ...uint64) map[uint64]uint64 { // return addresses from 0x10000 on, each in a frame of 16 bytes
		out := map[uint64]uint64{}
		for i, v := range w {
			out[0x10000+uint64(16*i)+8] = v
		}
		return out
	}
	frame := def(7, 16)
	for _, tt := range []struct {
		name string
		m    made
		n    int
		end  string
	}{
		{"undefined return address", made{map[uint64][]byte{0x1000: frame, 0x2000: {0x07, 16}}, words(0x2004)}, 2, EndOutermost},
		{"return address 0", made{map[uint64][]byte{0x1000: frame}, words(0)}, 1, EndOutermost},
		{"no entry", made{map[uint64][]byte{0x1000: frame}, words(0x3004)}, 2, EndNoTable},
		{"malformed entry", made{map[uint64][]byte{0x1000: {0x3f}}, nil}, 1, EndNoTable},
		{"rbp is not known", made{map[uint64][]byte{0x1000: frame, 0x2000: def(6, 16)}, words(0x2004)}, 2, EndUndefined + "rbp"},
		// A frame has saved rbp, so the next one can need it.
		{"rbp is saved", made{map[uint64][]byte{0x1000: append(def(7, 16), 0x86, 2), 0x2000: def(6, 16), 0x3000: {0x07, 16}},
			map[uint64]uint64{0x10008: 0x2004, 0x10000: 0x10040, 0x10048: 0x3004}}, 3, EndOutermost},
		// A register that calls can change is not the caller's.
		{"volatile", made{map[uint64][]byte{0x1000: frame, 0x2000: def(0, 8)}, words(0x2004)}, 2, EndUndefined + "rax"},
		{"below", made{map[uint64][]byte{0x1000: {0x0c, 7, 0, 0x13, 1}}, nil}, 1, EndBadCFA},
		{"another mapping", made{map[uint64][]byte{0x1000: {0x0c, 7, 0x80, 0x80, 0x08}}, nil}, 1, EndBadCFA},
		{"memory is not there", made{map[uint64][]byte{0x1000: frame}, nil}, 1, EndBadCFA},
		{"the same frame", made{map[uint64][]byte{0x1000: def(7, 0)},
			map[uint64]uint64{0xfff8: 0x1000}}, 1, EndBadCFA},
		{"malformed expression", made{map[uint64][]byte{0x1000: {0x0f, 1, 0xff}}, nil}, 1, EndNoTable},
	} {
		w := walker{m: &x86_64, s: &tt.m, r: registers{pc: 0x1000}}
		w.r.set(7, 0x10000)
		frames, end := w.walk()
		if len(frames) != tt.n || end != tt.end {
			t.Errorf("%s: %d frames, %s; want %d, %s", tt.name, len(frames), end, tt.n, tt.end)
		}
	}
}

// endless is a stack without an end.
type endless struct{ made }

func (e *endless) read(uint64, int) (uint64, error) { return 0x1004, nil }
func (e *endless) near(uint64, uint64) bool         { return true }

func TestDepth(t *testing.T) {
	e := &endless{made{rows: map[uint64][]byte{0x1000: {0x0c, 7, 16}}}}
	w := walker{m: &x86_64, s: e, r: registers{pc: 0x1000}}
	w.r.set(7, 0x10000)
	if frames, end := w.walk(); len(frames) != MaxFrames || end != EndDepth {
		t.Errorf("%d frames, %s", len(frames), end)
	}
}

func FuzzWalk(f *testing.F) {
	f.Add([]byte{0x0c, 7, 16}, []byte{4, 0x10, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0x0f, 3, 0x77, 8, 0x2f}, []byte{})
	f.Fuzz(func(t *testing.T, code, memory []byte) {
		m := &made{rows: map[uint64][]byte{0x1000: code}, words: map[uint64]uint64{}}
		for at := uint64(0xfff0); len(memory) >= 8; at, memory = at+8, memory[8:] {
			m.words[at] = binary.LittleEndian.Uint64(memory)
		}
		w := walker{m: &x86_64, s: m, r: registers{pc: 0x1000}}
		w.r.set(7, 0x10000)
		frames, end := w.walk()
		if len(frames) == 0 || end == "" {
			t.Errorf("%d frames, end %q", len(frames), end)
		}
	})
}

func FuzzMaps(f *testing.F) {
	f.Add([]byte("55d0c0a00000-55d0c0a01000 r-xp 00001000 08:01 1234   /usr/bin/a b\n7ff0-7fff rw-p 00000000 00:00 0 \n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range parseMaps(text) {
			if m.lo >= m.hi {
				t.Errorf("%#x-%#x", m.lo, m.hi)
			}
		}
	})
}

// TestPartialIsPrefix: what is walked from the stack pointer alone is the beginning of what is walked from all registers, for
// any tables and memory; and it ends before that only for a register that is not known.
func TestPartialIsPrefix(t *testing.T) {
	longer, same := 0, 0
	for seed := range int64(20000) {
		r := rand.New(rand.NewSource(seed))
		m := &made{rows: map[uint64][]byte{}, words: map[uint64]uint64{}}
		const functions = 6
		for f := range uint64(functions) {
			m.rows[0x1000*(1+f)] = randomRow(r)
		}
		for at := uint64(0x10000); at < 0x10400; at += 8 {
			switch r.Intn(5) {
			case 0:
				m.words[at] = 0x10000 + uint64(r.Intn(0x80))*8 // a frame pointer
			case 1: // nothing is there
			default:
				m.words[at] = uint64(r.Intn(functions+1))<<12 | 4
			}
		}
		walk := func(all bool) ([]Frame, string) {
			w := walker{m: &x86_64, s: m, r: registers{pc: 0x1004}}
			k := rand.New(rand.NewSource(seed))
			for reg := range 16 {
				if v := 0x10000 + uint64(k.Intn(0x40))*8; all {
					w.r.set(reg, v)
				}
			}
			w.r.set(7, 0x10000)
			return w.walk()
		}
		full, fullEnd := walk(true)
		part, end := walk(false)
		if len(part) > len(full) || !slices.Equal(part, full[:len(part)]) {
			t.Fatalf("seed %d: partial %v, full %v", seed, part, full)
		}
		if strings.HasPrefix(end, EndUndefined) {
			longer++
		} else if same++; end != fullEnd || len(part) != len(full) {
			t.Fatalf("seed %d: partial has %d frames, %s; full %d, %s", seed, len(part), end, len(full), fullEnd)
		}
	}
	if longer < 1000 || same < 1000 {
		t.Errorf("%d walks ended for a register, %d not: not much was tried", longer, same)
	}
}

// randomRow is a row of a function: its frame's place by rsp, rbp, rbx or by what is in memory; registers that are saved, the
// same, somewhere else or lost.
func randomRow(r *rand.Rand) []byte {
	var row []byte
	small := func() byte { return byte(8 * (1 + r.Intn(8))) }
	switch r.Intn(8) {
	case 0:
		row = []byte{0x0f, 3, 0x76, small(), 0x06} // *(rbp + n)
	case 1, 2:
		row = []byte{0x0c, 6, small()}
	case 3:
		row = []byte{0x0c, 3, small()}
	default:
		row = []byte{0x0c, 7, small()}
	}
	for range r.Intn(3) {
		reg := []byte{3, 6, 12}[r.Intn(3)]
		switch r.Intn(4) {
		case 0:
			row = append(row, 0x07, reg) // undefined
		case 1:
			row = append(row, 0x09, reg, []byte{3, 6, 12, 15}[r.Intn(4)]) // in another
		default:
			row = append(row, 0x80|reg, byte(1+r.Intn(8))) // saved
		}
	}
	if r.Intn(10) == 0 {
		row = append(row, 0x07, 16)
	}
	return row
}

// The tracer's segments are no part of the image that its headers say them with.
func TestExtent(t *testing.T) {
	own := []elf.ProgHeader{
		{Type: elf.PT_LOAD, Vaddr: 0x400000, Memsz: 0x518}, {Type: elf.PT_LOAD, Off: 0x1000, Vaddr: 0x401000, Memsz: 0x2345},
		{Type: elf.PT_NOTE, Off: 0x270, Vaddr: 0x400270, Memsz: 0x20},
	}
	added := []elf.ProgHeader{{Type: elf.PT_LOAD, Vaddr: 0x40400000, Memsz: 0x1000}, {Type: elf.PT_LOAD, Vaddr: 0x40410000, Memsz: 0x9000}}
	for _, progs := range [][]elf.ProgHeader{own, append(own, added...)} {
		if lowest, highest := extent(progs); lowest != 0x400000 || highest != 0x403345 {
			t.Errorf("%d headers: %#x to %#x", len(progs), lowest, highest)
		}
	}
}
