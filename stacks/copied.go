//go:build linux

package stacks

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/fentry-dev/fentry/elfio/ehframe"
)

// Registers are those of a thread when its stack was copied, by their DWARF numbers.
type Registers struct {
	PC    uint64
	Value [ehframe.Columns]uint64
	Known uint64 // bitmap
}

// Copied walks a stack that was copied from the stack pointer on. What is not in the copy is not read, unless nothing can
// change it: a walk that needs more ends with EndGone.
func (p *Process) Copied(r Registers, stack []byte) (frames []Frame, end string) {
	c := &copied{p, r.Value[host.sp], stack}
	for again := range 2 {
		w := walker{m: host, s: c, r: registers{pc: r.PC, value: r.Value, known: r.Known}}
		frames, end = w.walk()
		if end != EndNoTable && end != EndBadCFA || again == 1 || p.refresh() != nil {
			break
		}
	}
	return frames, end
}

// copied is a process with a copy of a part of its stack.
type copied struct {
	*Process
	lo uint64
	b  []byte
}

func (c *copied) has(addr uint64, size int) bool {
	return addr >= c.lo && addr-c.lo < uint64(len(c.b)) && uint64(size) <= uint64(len(c.b))-(addr-c.lo)
}

// read implements space.
func (c *copied) read(addr uint64, size int) (uint64, error) {
	if c.has(addr, size) && size <= 8 {
		var w [8]byte
		copy(w[:size], c.b[addr-c.lo:])
		return binary.LittleEndian.Uint64(w[:]), nil
	}
	if m := c.mapping(addr); m != nil && !m.writable {
		return c.mem.number(addr, size)
	}
	return 0, errGone
}

// near implements space. Where a stack has grown since the mappings were read only the copy knows.
func (c *copied) near(a, b uint64) bool {
	return c.has(a, 1) && (b < c.lo+uint64(len(c.b)) || c.mapping(b) != nil) || c.Process.near(a, b)
}

// An Image is a program or library in a process.
type Image struct {
	Address, Size uint64 // of its segments
	Bias          uint64 // load address minus link address
	Path          string
	BuildID       string // in hex digits, "" if it has none
}

// ImageAt returns the image that an address is in; false: it is in none.
func (p *Process) ImageAt(addr uint64) (Image, bool) {
	im := p.imageOf(addr)
	if im == nil {
		return Image{}, false
	}
	if !im.idRead {
		im.idRead, im.buildID = true, p.readBuildID(im)
	}
	return Image{im.lo, im.hi - im.lo, im.bias, im.path, im.buildID}, true
}

// Program returns the image of the process's program; false: it is not known.
func (p *Process) Program() (Image, bool) {
	for _, im := range p.images {
		if im.main {
			return p.ImageAt(im.lo)
		}
	}
	return Image{}, false
}

// readBuildID looks for the build-id among an image's notes in memory.
func (p *Process) readBuildID(im *image) string {
	const (
		ntGNUBuildID = 3
		most         = 1 << 12 // bytes of notes that are looked at
		longest      = 64
	)
	le := binary.LittleEndian
	for _, n := range im.notes {
		b, err := p.mem.bytes(n[0], int(min(n[1], most)))
		for err == nil && len(b) >= 16 {
			name, desc := le.Uint32(b), le.Uint32(b[4:])
			at := 12 + (uint64(name)+3)&^3
			end := at + (uint64(desc)+3)&^3
			if end > uint64(len(b)) {
				break
			}
			if le.Uint32(b[8:]) == ntGNUBuildID && name == 4 && string(b[12:16]) == "GNU\x00" && desc <= longest {
				return hex.EncodeToString(b[at : at+uint64(desc)])
			}
			b = b[end:]
		}
	}
	return ""
}

// Origin returns where code belongs that tracing has moved: an address in the function that it goes on in.
func (p *Process) Origin(pc uint64) (at uint64, ok bool) {
	_, at, ok = p.origin(pc)
	return at, ok
}
