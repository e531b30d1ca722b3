package view

import (
	"container/list"
	"context"
	"encoding/json"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/safetext"
)

// A page asks again and again for what it has asked for, and a hasty hand on the wheel for more than anybody waits
// for. Answers are kept as the text that is sent, the ones used last up to a number of bytes; who asks for what is
// being made gets the same; and no more than two are made at once, so that twenty do not take the machine. What
// counts calls of a long time can take seconds, and goes on when nobody waits for it any more, so it has a queue of
// its own: the timeline does not wait for it. Nor does what is there at once wait for whole tiles, which decode for a
// tenth of a second and more. Requests whose page has gone away leave the queues.

const (
	keptBytes  = 64 << 20
	sideBySide = 2
)

// answers keeps answers.
type answers struct {
	flights singleflight.Group

	short, whole, count queue

	mu    sync.Mutex
	bytes int
	used  *list.List // of *answer, the newest first
	byKey map[string]*list.Element
}

// A queue lets sideBySide in at once.
type queue chan struct{}

// An answer is what was sent for a key.
type answer struct {
	key  string
	text []byte
}

func newAnswers() *answers {
	return &answers{
		short: make(queue, sideBySide), whole: make(queue, sideBySide), count: make(queue, sideBySide),
		used: list.New(), byKey: map[string]*list.Element{},
	}
}

// get returns the answer for a key, made with fn in a turn of the queue if there is none. It must not be changed.
func (a *answers) get(ctx context.Context, q queue, key string, fn func() (any, error)) ([]byte, error) {
	if b := a.kept(key); b != nil {
		return b, nil
	}
	select {
	case q <- struct{}{}:
		defer func() { <-q }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	b, err, _ := a.flights.Do(key, func() (any, error) {
		if b := a.kept(key); b != nil {
			return b, nil
		}
		var text []byte
		if err := mapped.Guard(func() error { // programs are mapped while their lines are read
			value, err := fn()
			if err != nil {
				return err
			}
			text, err = json.Marshal(value)
			return err
		}); err != nil {
			return nil, err
		}
		text = safetext.JSON(text)
		a.keep(key, text)
		return text, nil
	})
	if err != nil {
		return nil, err
	}
	return b.([]byte), nil
}

func (a *answers) kept(key string) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.byKey[key]
	if e == nil {
		return nil
	}
	a.used.MoveToFront(e)
	return e.Value.(*answer).text
}

func (a *answers) keep(key string, text []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey[key] != nil || len(text) > keptBytes {
		return
	}
	a.byKey[key] = a.used.PushFront(&answer{key, text})
	a.bytes += len(text)
	for a.bytes > keptBytes {
		e := a.used.Back()
		old := a.used.Remove(e).(*answer)
		delete(a.byKey, old.key)
		a.bytes -= len(old.text)
	}
}
