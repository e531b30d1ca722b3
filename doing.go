//go:build linux

package fentry

import (
	"errors"

	"github.com/fentry-dev/fentry/internal/triggers"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// What is done at calls of functions while they are recorded, as whoever controls a recording says it.

// doing understands a spec of one of session's settings.
func (l *tables) doing(setting, spec string) (*session.Doing, error) {
	t, err := triggers.Parse(spec)
	var at *triggers.Error
	if errors.As(err, &at) {
		return nil, &session.SpecError{At: at.At, Why: at.Why}
	}
	if err != nil {
		return nil, err
	}
	acts := triggerActs(t)
	if acts == nil {
		return nil, errors.New("colors are the readers' to know: record --trigger")
	}
	match, err := l.match(t.Functions)
	if err != nil {
		return nil, err
	}
	return &session.Doing{Functions: t.Functions, Of: func(image trace.ImageID) (map[uint32][]patch.Act, error) {
		ids, err := match(image)
		all := make(map[uint32][]patch.Act, len(ids))
		for _, id := range ids {
			all[id] = acts
		}
		return all, err
	}}, nil
}
