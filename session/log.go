//go:build linux

package session

import "sync"

// A traced program can cause messages: each image that it announces and that cannot be read is one, and a program that
// forges images announced 29,443 of them. So of each kind of message, which is its format, the first ones are printed,
// and at the end it is said how many were not.

// maxMessages is how many messages of a kind are printed.
const maxMessages = 20

// A logger passes messages on, one at a time.
type logger struct {
	print func(format string, args ...any) // nil: they are discarded

	mu   sync.Mutex
	said map[string]int // by format
}

func (l *logger) logf(format string, args ...any) {
	if l.print == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said == nil {
		l.said = map[string]int{}
	}
	if l.said[format]++; l.said[format] <= maxMessages {
		l.print(format, args...)
	}
}

// close says what was not printed.
func (l *logger) close() {
	if l.print == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	unsaid := 0
	for _, n := range l.said {
		unsaid += max(0, n-maxMessages)
	}
	clear(l.said)
	if unsaid > 0 {
		l.print("%d more messages like these were not printed", unsaid)
	}
}
