package amd64

// The maps behind VEX, EVEX and XOP prefixes, in the words of the maps in
// tables.go (Intel SDM volume 2, appendix A.3 and the AVX-512 instruction
// pages; AMD APM volume 3 and 6). Here the map alone says whether an immediate
// follows, except in map 1. A map has what was documented when this was
// written; everything else is refused, for it may be anything tomorrow.
//
// d in an opcode's word: 32-bit immediate.

// VEX map 1 (0f). 41-4b, 90-99: mask registers.
const vex1Text = `
 - - - - - - - -  - - - - - - - -
 M M M m M M M m  - - - - - - - -
 - - - - - - - -  M M M m M M M M
 - - - - - - - -  - - - - - - - -
 - r r - r r r r  - - r r - - - -
 r M M M M M M M  M M M M M M M M
 M M M M M M M M  M M M M M M M M
 Mb rb rb rb M M M n  - - - - M M M M
 - - - - - - - -  - - - - - - - -
 M M r r - - - -  r r - - - - - -
 - - - - - - - -  - - - - - - m -
 - - - - - - - -  - - - - - - - -
 - - Mb - Mb rb Mb -  - - - - - - - -
 M M M M M M M r  M M M M M M M M
 M M M M M M M m  M M M M M M M M
 m M M M M M M r  M M M M M M M -
`

// VEX map 2 (0f 38)
const vex2Text = `
 M M M M M M M M  M M M M M M M M
 - - - M - - M M  M M M - M M M -
 M M M M M M - -  M M M M M M M M
 M M M M M M M M  M M M M M M M M
 M M - - - M M M  - M - M - - - -
 M M M M - - - -  M M M - M - M -
 - - - - - - - -  - - - - M - - -
 - - M - - - - -  M M - - - - - -
 - - - - - - - -  - - - - M - M -
 M M M M - - M M  M M M M M M M M
 - - - - - - M M  M M M M M M M M
 M M - - M M M M  M M M M M M M M
 - - - - - - - -  - - - M M M - M
 - - M M - - - -  - - M M M M M M
 M M M M M M M M  M M M M M M M M
 - - M M - M M M  - - - - - - - -
`

// VEX map 3 (0f 3a)
const vex3Text = `
 Mb Mb Mb - Mb Mb Mb -  Mb Mb Mb Mb Mb Mb Mb Mb
 - - - - Mb Mb Mb Mb  Mb Mb - - - Mb - -
 Mb Mb Mb - - - - -  - - - - - - - -
 Mb Mb Mb Mb - - - -  Mb Mb - - - - - -
 Mb Mb Mb - Mb - Mb -  Mb Mb Mb Mb Mb - - -
 - - - - - - - -  - - - - Mb Mb Mb Mb
 Mb Mb Mb Mb - - - -  Mb Mb Mb Mb Mb Mb Mb Mb
 - - - - - - - -  Mb Mb Mb Mb Mb Mb Mb Mb
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - Mb Mb
 - - - - - - - -  - - - - - - Mb Mb
 - - - - - - - -  - - - - - - - -
 Mb - - - - - - -  - - - - - - - -
`

// EVEX map 1 (0f)
const evex1Text = `
 - - - - - - - -  - - - - - - - -
 M M M M M M M M  - - - - - - - -
 - - - - - - - -  M M M M M M M M
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - M - - M M M M  M M M M M M M M
 M M M M M M M M  M M M M M M M M
 Mb Mb Mb Mb M M M -  M M M M - - M M
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - Mb - Mb Mb Mb -  - - - - - - - -
 - M M M M M M -  M M M M M M M M
 M M M M M M M M  M M M M M M M M
 - M M M M M M -  M M M M M M M -
`

// EVEX map 2 (0f 38)
const evex2Text = `
 M - - - M - - -  - - - M M M - -
 M M M M M M M -  M M M M M M M M
 M M M M M M M M  M M M M M M - -
 M M M M M M M M  M M M M M M M M
 M - M M M M M M  - - - - M M M M
 M M M M M M - -  M M M M - - - -
 - - M M M M M -  M - - - - - - -
 M M M M - M M M  M M M M M M M M
 - - - M - - - -  M M M M - M - M
 M M M M - - M M  M M M M M M M M
 M M M M - - M M  M M M M M M M M
 - - - - M M M M  M M M M M M M M
 - - - - M - - -  M - M M M M - M
 - - - - - - - -  - - - - M M M M
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
`

// EVEX map 3 (0f 3a)
const evex3Text = `
 Mb Mb - Mb Mb Mb - -  Mb Mb Mb Mb - - - Mb
 - - - - Mb Mb Mb Mb  Mb Mb Mb Mb - Mb Mb Mb
 Mb Mb Mb Mb - Mb Mb Mb  - - - - - - - -
 - - - - - - - -  Mb Mb Mb Mb - - Mb Mb
 - - Mb Mb Mb - - -  - - - - - - - -
 Mb Mb - - Mb Mb Mb Mb  - - - - - - - -
 - - - - - - Mb Mb  - - - - - - - -
 Mb Mb Mb Mb - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - Mb - - - - -  - - - - - - Mb Mb
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
`

// EVEX map 5 (AVX512-FP16)
const evex5Text = `
 - - - - - - - -  - - - - - - - -
 M M - - - - - -  - - - - - M - -
 - - - - - - - -  - - M - M M M M
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - M - - - - - -  M M M M M M M M
 - - - - - - - -  - - - - - - M -
 - - - - - - - -  M M M M M M M -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
`

// EVEX map 6 (AVX512-FP16)
const evex6Text = `
 - - - - - - - -  - - - - - - - -
 - - - M - - - -  - - - - - - - -
 - - - - - - - -  - - - - M M - -
 - - - - - - - -  - - - - - - - -
 - - M M - - - -  - - - - M M M M
 - - - - - - M M  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - M M  M M M M M M M M
 - - - - - - M M  M M M M M M M M
 - - - - - - M M  M M M M M M M M
 - - - - - - - -  - - - - - - - -
 - - - - - - M M  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
`

// XOP map 8: an 8-bit immediate
const xop8Text = `
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - Mb Mb Mb  - - - - - - Mb Mb
 - - - - - Mb Mb Mb  - - - - - - Mb Mb
 - - Mb Mb - - Mb -  - - - - - - - -
 - - - - - - Mb -  - - - - - - - -
 Mb Mb Mb Mb - - - -  - - - - Mb Mb Mb Mb
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - Mb Mb Mb Mb
 - - - - - - - -  - - - - - - - -
`

// XOP map 9: no immediate
const xop9Text = `
 - M M - - - - -  - - - - - - - -
 - - M - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 M M M M - - - -  - - - - - - - -
 M M M M M M M M  M M M M - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - M M M - - M M  - - - M - - - -
 - M M M - - M M  - - - M - - - -
 - M M M - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
`

// XOP map 10: a 32-bit immediate
const xop10Text = `
 - - - - - - - -  - - - - - - - -
 Md - Md - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
 - - - - - - - -  - - - - - - - -
`

// VEX map 7: urdmsr and uwrmsr with the register's number as a 32-bit immediate.
const vex7 = 0xf8

// vectorMaps is indexed by Enc and map; nil where there is none.
var vectorMaps [XOP + 1][32]*[256]desc

func parseVectorMaps() {
	for _, m := range []struct {
		enc  Enc
		n    int
		text string
	}{
		{VEX, 1, vex1Text},
		{VEX, 2, vex2Text},
		{VEX, 3, vex3Text},
		{EVEX, 1, evex1Text},
		{EVEX, 2, evex2Text},
		{EVEX, 3, evex3Text},
		{EVEX, 5, evex5Text},
		{EVEX, 6, evex6Text},
		{XOP, 8, xop8Text},
		{XOP, 9, xop9Text},
		{XOP, 10, xop10Text},
	} {
		t := parseMap(m.text, nil)
		vectorMaps[m.enc][m.n] = &t
	}
	vectorMaps[VEX][7] = &[256]desc{vex7: dValid | dModRM | dReg | imm32<<immShift}
}
