//go:build linux

package drain

import (
	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/adapt"
	"github.com/fentry-dev/fentry/session/internal/clock"
	"github.com/fentry-dev/fentry/trace"
)

// Adapt bounds what tracing costs programs, by having them switch functions off.
type Adapt struct {
	Meter *adapt.Meter
	// May tells whether functions of an image may be switched off.
	May func(trace.ImageID) bool
	// Done, if not nil, is called when programs have been told. It must not wait.
	Done func()
}

// adapt switches off what costs too much. The trace is told first: calls from then on may be missing.
func (d *Drainer) adapt() {
	if d.Adapt == nil || d.w.err != nil {
		return
	}
	off := d.Adapt.Meter.Decide(func(id uint32) bool {
		image, ok := d.p.ImageOf(id)
		return ok && d.Adapt.May(image)
	})
	if off = off[:min(len(off), d.p.RoomOff())]; len(off) == 0 {
		return
	}
	if d.append([]stored{switchedOff(off, clock.Read().Counter, d.stats.SwitchedOff)}, nil) == 0 {
		return
	}
	d.stats.Chunks++
	d.stats.SwitchedOff += len(off)
	for _, o := range off {
		d.p.SwitchOff(o.ID)
	}
	d.Adapt.Meter.Done(off, clock.Read().Counter)
	if d.Adapt.Done != nil {
		d.Adapt.Done()
	}
}

// switchedOff is a chunk that says which functions are switched off from a counter on; number were before.
func switchedOff(off []adapt.Off, counter uint64, number int) stored {
	c := stored{head: make([]byte, format.ChunkHeader)}
	for _, o := range off {
		var e [format.SwitchedOffEntry]byte
		le.PutUint32(e[format.OID:], o.ID)
		le.PutUint32(e[format.ORate:], o.Rate)
		le.PutUint64(e[format.OCounter:], counter)
		c.contents = append(c.contents, e[:]...)
	}
	le.PutUint32(c.head[format.CMagic:], format.ChunkMagic)
	le.PutUint16(c.head[format.CKind:], format.KindSwitchedOff)
	le.PutUint32(c.head[format.CSize:], uint32(format.ChunkHeader+len(c.contents)))
	le.PutUint32(c.head[format.CNumber:], uint32(number))
	le.PutUint64(c.head[format.CCounter:], counter)
	return c
}
