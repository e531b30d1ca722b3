package patch

import (
	"bytes"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/record/golang"
)

// Go's functions that are the original's again.
//
// Jumps to events that are switched off cost a server a third of its time, so functions that are off for long get back what
// was rewritten, and their jumps when they are on again (session/internal/tracee, sites_linux_amd64.go). All threads are
// stopped then, but goroutines that do not run are in no list that can be found in every program. What is true of them:
//
//   - Calls have not moved, so no call returns to the middle of what is rewritten.
//   - A goroutine that was stopped by a signal goes on where runtime.asyncPreempt returns to, and that never is in the middle
//     of what is rewritten, but in the copy (arch/amd64, gopreempted.go).
//   - An address at which there was a fault is looked up, and nothing is executed there.
//
// Each window of a function is changed by itself, page by page if the recorder is killed meanwhile. So functions stay as they
// are of which one window leads to another: by a short jump, or as a branch goes to the middle of it.

// asyncPreempt is what goroutines execute that are stopped by a signal.
const asyncPreempt = "runtime.asyncPreempt"

// A goReverter is a machine with functions that can be the original's again.
type goReverter interface {
	goMachine
	reverter
	// goPreemptHead is what runtime.asyncPreempt begins with in versions of Go that are known, as long as a jump.
	goPreemptHead() []byte
	// appendGoPreempted appends the routine that goroutines come to which were stopped, for address at, with a table of
	// returns, which are sorted, behind it. preempt is the address of runtime.asyncPreempt.
	appendGoPreempted(dst []byte, at, preempt uint64, returns []arch.GoReturn) ([]byte, error)
	// goPreemptedLen is how long that is, with a table of so many.
	goPreemptedLen(returns int) int
}

// placePreempted adds the routine that goroutines come to which were stopped by a signal, and notes the functions that can
// be the original's again.
func (l *layout) placePreempted(im *golang.Image) error {
	m, ok := l.p.m.(goReverter)
	if !ok || l.p.Options.Target != Process || !im.Version.Module() {
		return nil // without a module no stack may have the address of a copy
	}
	preempt := preempted(im)
	if preempt == nil {
		return nil
	}
	head := m.goPreemptHead()
	if code, err := im.Code(preempt); err != nil || !bytes.HasPrefix(code, head) {
		return err
	}
	for _, c := range l.goCodes {
		code, err := im.Code(c.f)
		if err != nil {
			return err
		}
		l.canRevert(m, &c.movedCode, code)
	}
	l.sortReturns()
	at := l.add(piece{
		name: ".fentry.preempted", code: true, size: uint64(m.goPreemptedLen(len(l.movedReturns))), align: 8, owner: nobody,
		write: func(dst []byte) ([]byte, error) {
			return m.appendGoPreempted(dst, l.goPreempted, preempt.Entry, l.movedReturns)
		},
	})
	l.goPreempted, l.goPreemptedLen, l.goPreempt = at, uint64(m.goPreemptedLen(0)), preempt.Entry
	jump, err := m.appendMovedJump(nil, preempt.Entry, at)
	if err != nil {
		return err
	}
	l.tables = append(l.tables, arch.Edit{
		Addr: preempt.Entry, Old: head, New: jump, Func: asyncPreempt, Reason: "preempted",
	})
	return nil
}

func (l *layout) preempts(addr uint64) bool {
	return l.goPreempted != 0 && (addr == l.goPreempt || addr-l.goPreempted < l.goPreemptedLen)
}

func (l *layout) goes(addr uint64) bool { return l.p.golang.HasGo(addr) }

// preempted is the function that goroutines execute which are stopped by a signal; nil: there is none, or more than one.
func preempted(im *golang.Image) (found *golang.Func) {
	for i := range im.Funcs {
		if f := &im.Funcs[i]; f.Name == asyncPreempt && f.Assembly() {
			if found != nil {
				return nil
			}
			found = f
		}
	}
	return found
}
