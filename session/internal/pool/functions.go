//go:build linux

package pool

import (
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/trace"
)

// ImageOf is the image of a function, by its id in events, as far as programs have said. All of it is their word.
func (p *Pool) ImageOf(id uint32) (image trace.ImageID, ok bool) {
	image, _, ok = p.FunctionOf(id)
	return image, ok
}

// FunctionOf is the same, with the function's id in the image.
func (p *Pool) FunctionOf(id uint32) (image trace.ImageID, local uint32, ok bool) {
	for i := range images {
		e := p.ranges + i*format.RangeEntry
		first, count := p.Word(e+format.RFirst).Load(), p.Word(e+format.RCount).Load()
		if count == 0 {
			break
		}
		if id-first < count {
			image = trace.ImageID(p.Word64(e + format.RImage).Load())
			return image, id - first + 1, image != 0
		}
	}
	return 0, 0, false
}

// RoomOff is how many more functions can be switched off.
func (p *Pool) RoomOff() int { return switchedOff - p.offs }

// SwitchOff tells programs to switch a function off, of whose kind there may be RoomOff. What they write to the list is
// their own loss.
func (p *Pool) SwitchOff(id uint32) {
	p.Word(p.off + 4*p.offs).Store(id)
	p.offs++
	p.Word(format.HSwitchedOffCount).Store(uint32(p.offs))
}
