//go:build linux

package session

import (
	"io"

	"github.com/fentry-dev/fentry/internal/format"
	"github.com/fentry-dev/fentry/session/internal/drain"
	"github.com/fentry-dev/fentry/session/internal/pool"
)

// losses are what the header of a trace says about events that are in no chunk. Programs
// count what they lose in the header of the pool, or say there that they cannot; the
// recorder adds what it could not write.
type losses struct {
	lost, overwritten uint64
	uncounted         uint32 // see the format: not 0, if some were lost that nobody counted
	from, to          uint64 // counter
}

// lossesOf reads what programs say that they have not counted so far.
func lossesOf(p *pool.Pool) losses {
	return losses{
		uncounted: p.Word(format.HUncounted).Load(),
		from:      p.Word64(format.HUncountedFrom).Load(),
	}
}

// counted reads what they have counted.
func (l *losses) counted(p *pool.Pool) {
	l.lost = p.Word64(format.HLost).Load()
	l.overwritten = p.Word64(format.HOverwritten).Load()
}

// add adds what the recorder knows. After it has failed, programs have stopped to count.
// Chunks that make no sense may have held any number of events, at any time.
func (l *losses) add(c drain.Counts) {
	l.lost += c.Unwritten
	l.overwritten += c.Overwrote
	if c.Failed != 0 {
		l.say(c.Failed)
	}
	if c.Bad != 0 {
		l.say(0)
	}
}

// say says that events were lost from a counter on that nobody has counted.
func (l *losses) say(from uint64) {
	if l.uncounted == 0 || from < l.from {
		l.from = from
	}
	l.uncounted++
}

// write writes to the header of a trace what no task tells of, for readers that have the
// file alone. A header that cannot be written is as it was.
func (l *losses) write(w io.WriterAt) {
	_, _ = w.WriteAt(le.AppendUint64(nil, l.lost), format.HLost)
	b := le.AppendUint32(nil, l.uncounted)
	b = le.AppendUint64(b, l.from)
	b = le.AppendUint64(b, l.to)
	b = le.AppendUint64(b, l.overwritten)
	_, _ = w.WriteAt(b, format.HUncounted)
}
