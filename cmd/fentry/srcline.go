package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// sources prints the source lines of traces' functions. A nil *sources knows none.
type sources struct {
	app   *app
	read  reading
	known map[trace.FuncID]string
	told  map[toldImage]bool // images without lines
	cwd   string
}

type toldImage struct {
	t     *trace.Trace
	image uint32
}

func newSources(a *app, r reading) *sources {
	s := &sources{app: a, read: r, known: map[trace.FuncID]string{}, told: map[toldImage]bool{}}
	s.cwd, _ = os.Getwd()
	return s
}

// line returns "file:line" of a function, "" when it is not known.
func (s *sources) line(id trace.FuncID) string {
	if s == nil {
		return ""
	}
	if l, ok := s.known[id]; ok {
		return l
	}
	t, fn := s.read.origin(id)
	file, line, err := t.Source(fn)
	if im := (toldImage{t, fn.Image}); err != nil && !s.told[im] {
		s.told[im] = true
		s.app.notef("fentry: no source lines: %v", err)
	}
	text := ""
	if file != "" {
		text = sourceLine(symbol.Line{File: file, Line: line}, s.cwd)
	}
	s.known[id] = text
	return text
}

// sourceLine formats a line, relative to the working directory if it lies below.
func sourceLine(l symbol.Line, cwd string) string {
	l.File = filepath.Clean(l.File)
	if cwd != "" {
		if rest, ok := strings.CutPrefix(l.File, strings.TrimSuffix(cwd, "/")+"/"); ok {
			l.File = rest
		}
	}
	return printable(l.String())
}
