//go:build linux

package fentry

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// Live is a recording of processes that run, while it goes on: what is recorded can be changed, and what there is in the
// buffer looked at. Its methods are safe for concurrent use.
type Live struct {
	*session.Live
	executed *executed

	mu     sync.Mutex
	tables map[trace.ImageID]*names.Table
}

// A LiveFunction is one that can be switched.
type LiveFunction struct {
	Image trace.ImageID
	ID    uint32 // in the image
	Name  string // raw symbol name, or what stands in for one
	Path  string // of the image
}

// Functions are all that can be switched, by image and id.
func (l *Live) Functions() (all []LiveFunction) {
	for _, image := range l.Images() {
		t := l.table(image)
		if t == nil {
			continue
		}
		for f := range t.Traced() {
			all = append(all, LiveFunction{Image: image, ID: f.ID, Name: f.Display(), Path: t.Path})
		}
	}
	return all
}

// table returns the functions of an image; nil: it is not known.
func (l *Live) table(image trace.ImageID) *names.Table {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tables[image]; t != nil {
		return t
	}
	var t *names.Table
	err := mapped.Guard(func() error {
		if t = l.executed.names(image); t == nil {
			return nil
		}
		t.Funcs = slices.DeleteFunc(t.Funcs, func(f names.Func) bool { return f.ID == 0 })
		slices.SortFunc(t.Funcs, func(a, b names.Func) int { return cmp.Compare(a.ID, b.ID) })
		for i := range t.Funcs { // they outlive the file's mapping
			t.Funcs[i].Name, t.Funcs[i].Kind = strings.Clone(t.Funcs[i].Name), strings.Clone(t.Funcs[i].Kind)
		}
		return nil
	})
	if err != nil || t == nil {
		return nil
	}
	if l.tables == nil {
		l.tables = make(map[trace.ImageID]*names.Table)
	}
	l.tables[image] = t
	return t
}

// Open writes what is in the buffer to a directory, as Snapshot does, and opens it. Nobody else may use the directory
// until the trace is closed.
func (l *Live) Open(dir string) (*trace.Trace, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := l.Snapshot(dir); err != nil {
		return nil, err
	}
	return trace.OpenWith(dir, trace.Options{HeaderClock: true, Resolve: func(im trace.Image) (trace.SymTable, error) {
		if t := l.table(im.ID); t != nil {
			return t, nil
		}
		return nil, errors.New("no image of this recording")
	}})
}
