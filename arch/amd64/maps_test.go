package amd64

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestOpcodeMaps compares every opcode of every map, with the prefixes that
// select instructions and ModRM bytes of every kind, with objdump.
func TestOpcodeMaps(t *testing.T) {
	parsed.Do(parseMaps)
	tail := []byte{0x25, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	var modrms []byte
	for reg := range 8 {
		modrms = append(modrms, byte(reg<<3), 0xc0|byte(reg<<3))
	}
	modrms = append(modrms, 0x04, 0x05, 0x44, 0x45, 0x84, 0x85)
	wide := testtool.Wide()
	prefixes := []string{"", "66", "f2", "f3", "48"}
	if wide {
		prefixes = append(prefixes, "6648", "f348", "67")
	}
	var codes [][]byte
	flush := func(name string) {
		t.Helper()
		compareCodes(t, name, codes)
		codes = codes[:0]
	}

	for _, m := range []string{"", "0f", "0f38", "0f3a"} {
		forms := modrms
		if len(m) < 4 {
			// One of the register forms for each opcode of the groups there.
			for b := 0xc1; b < 0x100; b++ {
				if b&7 != 0 {
					forms = append(forms, byte(b))
				}
			}
		}
		for _, p := range prefixes {
			for op := range 256 {
				if m == "" && map0[op]&dPrefix != 0 || m == "0f" && (op == 0x38 || op == 0x3a || op == 0xff) {
					continue
				}
				for _, modrm := range forms {
					codes = append(codes, append(append(unhex(t, p+m), byte(op), modrm), tail...))
				}
			}
		}
		flush("map " + m)
	}

	for op := range 256 {
		codes = append(codes, append(unhex(t, "0f 0f c1"), byte(op), 0x90), append(unhex(t, "0f 0f 05 01 02 03 04"), byte(op), 0x90))
	}
	flush("3DNow!")

	// In the vector maps, instructions differ by operand size, width and length bits, and by whether there is a second source.
	sources, lengths := []byte{15}, []byte{0, 1}
	if wide {
		sources, lengths = []byte{15, 14}, []byte{0, 1, 2}
	} else {
		modrms = []byte{0x00, 0x05, 0x44, 0xc0, 0xd0, 0xe0, 0xf0}
	}
	for enc, maps := range vectorMaps {
		for m, table := range maps {
			if table == nil || Enc(enc) == VEX && m == 7 { // newer than objdump
				continue
			}
			for i := range 4 * 2 * len(sources) * len(lengths) {
				pp, w, v, l := byte(i&3), byte(i>>2&1), sources[i>>3%len(sources)], lengths[i>>3/len(sources)%len(lengths)]
				for op := range 256 {
					for _, modrm := range modrms {
						var c []byte
						switch Enc(enc) {
						case VEX, XOP:
							if l == 2 {
								continue
							}
							first := map[Enc]byte{VEX: 0xc4, XOP: 0x8f}[Enc(enc)]
							c = []byte{first, byte(0xe0 | m), w<<7 | v<<3 | l<<2 | pp}
						case EVEX:
							c = []byte{0x62, byte(0xf0 | m), w<<7 | v<<3 | 4 | pp, l<<5 | 8}
						}
						codes = append(codes, append(append(c, byte(op), modrm), tail...))
					}
				}
			}
			flush(fmt.Sprintf("%v map %d", Enc(enc), m))
		}
	}
}

func compareCodes(t *testing.T, name string, codes [][]byte) {
	t.Helper()
	known, bad := 0, 0
	wrong := 0
	for i, l := range objdumpCodes(t, codes) {
		code := append(bytes.Clone(codes[i]), bytes.Repeat([]byte{0x90}, 16)...)
		switch v := compare(code, l); v {
		case verdictSame:
			known++
		case verdictBad:
			bad++
		case verdictRefused, verdictFwait, verdictPrefix:
		default:
			in, err := Decode(code)
			if wrong++; wrong <= 10 {
				t.Errorf("%s: % x: %s: objdump: %d bytes, %s; Decode: %+v, %v", name, codes[i], v, len(l.bytes), l.text, in, err)
			}
		}
	}
	t.Logf("%s: %d forms the same, %d objdump does not know", name, known, bad)
	if known == 0 {
		t.Errorf("%s: nothing compared", name)
	}
}

// TestRandomBytes compares bytes nobody wrote: runs of prefixes, and whatever follows.
func TestRandomBytes(t *testing.T) {
	n := 200_000
	if testtool.Wide() {
		n = 2_000_000
	}
	r := rand.New(rand.NewPCG(1, 2))
	prefixes := []byte{0x66, 0x67, 0xf2, 0xf3, 0xf0, 0x2e, 0x3e, 0x64, 0x41, 0x48, 0x4c, 0x0f, 0xc4, 0xc5, 0x62, 0x8f}
	for n > 0 {
		codes := make([][]byte, min(n, 200_000))
		for i := range codes {
			c := make([]byte, 16)
			for j := range c {
				c[j] = byte(r.Uint32())
			}
			for j := range r.IntN(5) {
				c[j] = prefixes[r.IntN(len(prefixes))]
			}
			codes[i] = c
		}
		compareCodes(t, "random bytes", codes)
		n -= len(codes)
	}
}
