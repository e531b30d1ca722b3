//go:build linux

package fentry

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/names"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/session"
	"github.com/fentry-dev/fentry/trace"
)

// Live is a recording while it goes on: what is recorded can be changed, and what there is in the buffer looked at. Its
// methods are safe for concurrent use.
type Live struct {
	*session.Live
	tables *tables
}

// tables are the functions of images, read once. Its methods are safe for concurrent use.
type tables struct {
	of func(trace.ImageID) (*names.Table, error) // nil: it is not known

	mu     sync.Mutex
	all    map[trace.ImageID]*names.Table
	mapped map[trace.ImageID]bool // those that a process had mapped once
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
		t := l.tables.table(image)
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
func (l *tables) table(image trace.ImageID) *names.Table {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.all[image]; t != nil {
		return t
	}
	var t *names.Table
	err := mapped.Guard(func() (err error) {
		if t, err = l.of(image); t == nil || err != nil {
			return err
		}
		t.Funcs = slices.DeleteFunc(t.Funcs, func(f names.Func) bool { return f.ID == 0 })
		slices.SortFunc(t.Funcs, func(a, b names.Func) int { return cmp.Compare(a.ID, b.ID) })
		for i := range t.Funcs { // they outlive the file's mapping
			t.Funcs[i].Name, t.Funcs[i].Kind = strings.Clone(t.Funcs[i].Name), strings.Clone(t.Funcs[i].Kind)
		}
		for _, aliases := range t.Aliases {
			for i := range aliases {
				aliases[i] = strings.Clone(aliases[i])
			}
		}
		return nil
	})
	if err != nil || t == nil {
		return nil
	}
	l.put(image, t)
	return t
}

// keep remembers the functions of an image that was found elsewhere.
func (l *tables) keep(image trace.ImageID, t *names.Table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(image, t)
}

func (l *tables) put(image trace.ImageID, t *names.Table) {
	if l.all == nil {
		l.all = make(map[trace.ImageID]*names.Table)
	}
	l.all[image] = t
}

// match understands a pattern, and returns which functions of an image it matches, by local id.
func (l *tables) match(pattern string) (func(trace.ImageID) ([]uint32, error), error) {
	f, err := record.NewFilter([]string{pattern}, nil)
	if err != nil {
		return nil, err
	}
	return l.matching(f), nil
}

// matching returns which functions of an image a filter chooses, by local id.
func (l *tables) matching(f *record.Filter) func(trace.ImageID) ([]uint32, error) {
	return func(image trace.ImageID) (ids []uint32, err error) {
		t := l.table(image)
		if t == nil {
			return nil, nil
		}
		in := f.In(t.Path)
		for fn := range t.Traced() {
			if in.Match(fn.Display(), t.AliasesOf(&fn)...) {
				ids = append(ids, fn.ID)
			}
		}
		return ids, nil
	}
}

// Open writes what is in the buffer to a directory, as Snapshot does, and opens it. Nobody else may use the directory
// until the trace is closed.
func (l *Live) Open(dir string) (*trace.Trace, error) { return l.open(dir, 0, trace.Options{}) }

// open is Open for what is newer than a counter.
func (l *Live) open(dir string, from uint64, o trace.Options) (*trace.Trace, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := l.Snapshot(dir, from); err != nil {
		return nil, err
	}
	return l.openTrace(dir, o)
}

// openTrace opens a trace of this recording.
func (l *Live) openTrace(dir string, o trace.Options) (*trace.Trace, error) {
	o.HeaderClock, o.CounterHz = true, l.Hz
	o.Resolve = func(im trace.Image) (trace.SymTable, error) {
		t := l.tables.table(im.ID)
		if t == nil {
			var err error
			if t, err = names.Find(names.Image{ID: uint64(im.ID), Paths: []string{im.File, im.Path, im.Exe}}); err != nil {
				return nil, err
			}
			l.tables.keep(im.ID, t)
		}
		return t, nil
	}
	return trace.OpenWith(dir, o)
}
