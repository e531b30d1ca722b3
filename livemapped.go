//go:build linux

package fentry

import (
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// Mapped are the images of [Live.Functions] that a process has mapped now: others are libraries that it has unloaded.
// What cannot be told apart, because it is called differently in the process, is taken to be there.
func (l *Live) Mapped(pid int) ([]trace.ImageID, error) {
	maps, err := session.Maps(pid)
	if err != nil {
		return nil, err
	}
	paths := make(map[string]bool)
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 {
			paths[strings.TrimSuffix(strings.TrimSuffix(line[at:], "\n"), " (deleted)")] = true
		}
	}
	return slices.DeleteFunc(l.Images(), func(image trace.ImageID) bool {
		t := l.tables.table(image)
		return t != nil && l.tables.left(image, paths[t.Path])
	}), nil
}

// left notes whether an image is mapped, and tells whether it was and is no more.
func (l *tables) left(image trace.ImageID, mapped bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mapped {
		if l.mapped == nil {
			l.mapped = make(map[trace.ImageID]bool)
		}
		l.mapped[image] = true
	}
	return !mapped && l.mapped[image]
}
