package amd64

import (
	"strings"
	"sync"
)

// The opcode maps, one word an opcode, in the order of the opcode: row by
// high digit, column by low digit, as the manuals print them (Intel SDM
// volume 2, appendix A; AMD APM volume 3, appendix A). The letters of a word:
//
//	-  undefined in 64-bit mode
//	p  legacy prefix, or REX
//	x  escape to another map or encoding
//	n  nothing follows the opcode
//	M  a ModRM byte follows, with what it asks for; m: its operand must be memory; r: must be a register
//	b  8-bit immediate
//	w  16-bit immediate
//	z  16-bit immediate with operand size 16, else 32-bit
//	v  as z, but 64-bit with REX.W
//	e  16-bit and 8-bit immediate (enter)
//	o  absolute address, 64-bit, or 32-bit with an address-size prefix
//	j  8-bit branch displacement
//	J  32-bit branch displacement
//	g  defined only for some ModRM bytes or prefixes: see group
//
// They say where an opcode ends, and which ones exist. Whether an opcode exists
// with a certain mandatory prefix is looked at only where the length depends on it.

const map0Text = `
 M M M M b z - -  M M M M b z - x
 M M M M b z - -  M M M M b z - -
 M M M M b z p -  M M M M b z p -
 M M M M b z p -  M M M M b z p -
 p p p p p p p p  p p p p p p p p
 n n n n n n n n  n n n n n n n n
 - - x M p p p p  z Mz b Mb n n n n
 j j j j j j j j  j j j j j j j j
 Mb Mz - Mb M M M M  M M M M Mg m Mg xg
 ng n n n n n n n  n n - n n n n n
 o o o o n n n n  b z n n n n n n
 b b b b b b b b  v v v v v v v v
 Mb Mb w n x x Mbg Mzg  e n w n n b - n
 M M M M - x - n  Mg Mg Mg Mg Mg Mg Mg Mg
 j j j j b b b b  J J - j n n n n
 p n p p n n Mg Mg  n n n n n n Mg Mg
`

const map1Text = `
 Mg Mg M M - n n n  n n - n - Mg n Mbg
 M M M m M M M m  M M M M M M Mg Mg
 Mg Mg Mg Mg - - - -  M M M m M M M M
 n n n n n n - n  x - x - - - - -
 M M M M M M M M  M M M M M M M M
 r M M M M M M M  M M M M M M M M
 M M M M M M M M  M M M M M M M M
 Mb rbg rbg rbg M M M n  Mg Mg - - M M M M
 J J J J J J J J  J J J J J J J J
 M M M M M M M M  M M M M M M M M
 n n n M Mb M Mg Mg  n n n M Mb M Mg M
 M M m M m m M M  Mg M Mbg M M M M M
 M M Mb m Mb rb Mb Mg  n n n n n n n n
 M M M M M M M r  M M M M M M M M
 M M M M M M M m  M M M M M M M M
 m M M M M M M r  M M M M M M M xg
`

// After 0f 38: never an immediate.
const map2Text = `
 M M M M M M M M  M M M M - - - -
 M - - - M M - M  - - - - M M M -
 M M M M M M - -  M M m M - - - -
 M M M M M M - M  M M M M M M M M
 M M - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 m m m - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  M M M M M M - M
 - - - - - - - -  m - - M M M M M
 - - - - - - - -  - - - - - - - -
 M M - - - m M -  M m r r m - - -
`

// After 0f 3a: always an 8-bit immediate.
const map3Text = `
 - - - - - - - -  Mb Mb Mb Mb Mb Mb Mb Mb
 - - - - Mb Mb Mb Mb  - - - - - - - -
 Mb Mb Mb - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 Mb Mb Mb - Mb - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 Mb Mb Mb Mb - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - Mb - Mb Mb
 - - - - - - - -  - - - - - - - Mb
 - - - - - - - -  - - - - - - - -
 rb - - - - - - -  - - - - - - - -
`

// desc describes an opcode: shape and operands in the low byte, class in the high one.
type desc uint16

const (
	dValid  desc = 1 << iota // the opcode exists
	dPrefix                  // it is a prefix or an escape
	dModRM
	dGroup // some forms do not exist: ask group
	dImm0  // four bits: immKind
	_
	_
	_
	dMem // ModRM must name memory
	dReg // ModRM must name a register
	dOp  // six bits: Op

	immShift = 4
	immMask  = 15
	opShift  = 10
)

const (
	immNone = iota
	imm8
	imm16
	immZ
	immV
	immEnter
	immMoffs
	imm32 // whatever the operand size
	rel8  // this one and the next are branch displacements
	rel32
)

// immLens is the length of each kind of immediate without the prefixes that change it.
var immLens = [...]int{imm8: 1, imm16: 2, immZ: 4, immV: 4, immEnter: 3, immMoffs: 8, imm32: 4}

// What follows a ModRM byte: one of modrmForms for each.
const (
	formDisp = 7  // bytes of displacement
	formSIB  = 8  // a SIB byte before it
	formRIP  = 16 // the displacement is relative to RIP
	formReg  = 32 // nothing, the operand is a register
)

var modrmForms = func() (f [256]uint8) {
	for m := range f {
		switch m >> 6 {
		case 0:
			if m&7 == 5 {
				f[m] = 4 | formRIP
			}
		case 1:
			f[m] = 1
		case 2:
			f[m] = 4
		case 3:
			f[m] = formReg
		}
		if m < 0xc0 && m&7 == 4 {
			f[m] |= formSIB
		}
	}
	return f
}()

// The maps, parsed when the first instruction is decoded: a program that decodes none does not pay for them.
var (
	map0, map1, map2, map3 [256]desc

	parsed sync.Once
)

func parseMaps() {
	map0 = parseMap(map0Text, classes0)
	map1 = parseMap(map1Text, classes1)
	map2 = parseMap(map2Text, nil)
	map3 = parseMap(map3Text, nil)
	parseVectorMaps()
}

type opRange struct {
	lo, hi byte
	op     Op
}

// Classes that follow from the opcode alone.
var classes0 = []opRange{
	{0x50, 0x57, Push}, {0x58, 0x5f, Pop}, {0x68, 0x68, Push}, {0x6a, 0x6a, Push},
	{0x70, 0x7f, Jcc}, {0x8f, 0x8f, Pop}, {0x90, 0x90, Nop}, {0x9c, 0x9c, Push}, {0x9d, 0x9d, Pop},
	{0xc2, 0xc3, Ret}, {0xc8, 0xc8, Enter}, {0xc9, 0xc9, Leave}, {0xca, 0xcb, RetFar},
	{0xcc, 0xcc, Int3}, {0xcd, 0xcd, Int}, {0xcf, 0xcf, Iret}, {0xe0, 0xe2, Loop}, {0xe3, 0xe3, Jrcxz},
	{0xe8, 0xe8, Call}, {0xe9, 0xe9, Jmp}, {0xeb, 0xeb, Jmp}, {0xf1, 0xf1, Int}, {0xf4, 0xf4, Hlt},
}

var classes1 = []opRange{
	{0x05, 0x05, Syscall}, {0x07, 0x07, Sysret}, {0x0b, 0x0b, Ud}, {0x1f, 0x1f, Nop},
	{0x34, 0x34, Syscall}, {0x35, 0x35, Sysret}, {0x80, 0x8f, Jcc},
	{0xa0, 0xa0, Push}, {0xa1, 0xa1, Pop}, {0xa8, 0xa8, Push}, {0xa9, 0xa9, Pop}, {0xb9, 0xb9, Ud},
}

func parseMap(text string, classes []opRange) (m [256]desc) {
	words := strings.Fields(text)
	if len(words) != len(m) {
		panic("amd64: opcode map has not 256 words")
	}
	for i, word := range words {
		var d desc
		for _, c := range word {
			switch c {
			case '-':
				continue
			case 'n':
			case 'p', 'x':
				d |= dPrefix
			case 'M':
				d |= dModRM
			case 'm':
				d |= dModRM | dMem
			case 'r':
				d |= dModRM | dReg
			case 'g':
				d |= dGroup
			case 'b':
				d |= imm8 << immShift
			case 'w':
				d |= imm16 << immShift
			case 'z':
				d |= immZ << immShift
			case 'd':
				d |= imm32 << immShift
			case 'v':
				d |= immV << immShift
			case 'e':
				d |= immEnter << immShift
			case 'o':
				d |= immMoffs << immShift
			case 'j':
				d |= rel8 << immShift
			case 'J':
				d |= rel32 << immShift
			default:
				panic("amd64: opcode map has an unknown letter")
			}
			d |= dValid
		}
		m[i] = d
	}
	for _, r := range classes {
		for op := int(r.lo); op <= int(r.hi); op++ {
			m[op] |= desc(r.op) << opShift
		}
	}
	return m
}
