package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/symbol"
	"github.com/fentry-dev/fentry/trace"
)

// sources finds the source lines of functions, in the programs a trace was made
// of. A nil *sources knows none.
type sources struct {
	app    *app
	t      *trace.Trace
	images map[uint32]*sourceImage
	known  map[trace.FuncID]string
	cwd    string
}

// A sourceImage is the debug information of one image; nil lines: none.
type sourceImage struct {
	lines *symbol.Table
	done  func()
}

func newSources(a *app, t *trace.Trace) *sources {
	s := &sources{app: a, t: t, images: map[uint32]*sourceImage{}, known: map[trace.FuncID]string{}}
	s.cwd, _ = os.Getwd()
	return s
}

// close releases the programs.
func (s *sources) close() {
	if s == nil {
		return
	}
	for _, im := range s.images {
		if im.lines != nil {
			im.lines.Close()
			im.done()
		}
	}
}

// line returns "file:line" of a function, "" when it is not known.
func (s *sources) line(id trace.FuncID) string {
	if s == nil || id.ID == 0 || int(id.Image) >= len(s.t.Images) {
		return ""
	}
	if l, ok := s.known[id]; ok {
		return l
	}
	im := s.images[id.Image]
	if im == nil {
		im = &sourceImage{}
		var err error
		if im.lines, im.done, err = openLines(&s.t.Images[id.Image]); err != nil {
			s.app.notef("fentry: no source lines: %v", err)
		}
		s.images[id.Image] = im
	}
	text := ""
	if im.lines != nil {
		if fn := s.t.Func(id); fn.Addr != 0 {
			text = sourceLine(im.lines, fn.Addr, s.cwd)
		}
	}
	s.known[id] = text
	return text
}

// sourceLine formats the line of an address, relative to the working directory
// if it lies below.
func sourceLine(tab *symbol.Table, addr uint64, cwd string) string {
	l, ok, err := tab.Line(addr)
	if err != nil || !ok {
		return ""
	}
	l.File = filepath.Clean(l.File)
	if cwd != "" {
		if rest, ok := strings.CutPrefix(l.File, strings.TrimSuffix(cwd, "/")+"/"); ok {
			l.File = rest
		}
	}
	return printable(l.String())
}

// openLines opens the program of an image and makes sure that it is the one that
// was traced.
func openLines(im *trace.Image) (tab *symbol.Table, done func(), err error) {
	for _, path := range []string{im.Path, im.Exe} {
		if path == "" {
			continue
		}
		tab, done, why := openProgramLines(path, im)
		if why == nil {
			return tab, done, nil
		}
		if err == nil {
			err = why
		}
	}
	if err == nil {
		err = errors.New("the trace does not name the program's file")
	}
	return nil, nil, err
}

func openProgramLines(path string, im *trace.Image) (*symbol.Table, func(), error) {
	b, done, err := mapFile(path)
	if err != nil {
		return nil, nil, err
	}
	tab, err := func() (*symbol.Table, error) {
		f, err := elfio.Parse(b)
		if err != nil {
			return nil, err
		}
		id := f.BuildID()
		if in, err := patch.Inspect(f); err == nil {
			id = in.BuildID
		}
		if want, err := hex.DecodeString(im.BuildID); err == nil && len(want) > 0 && len(id) > 0 && !bytes.Equal(id, want) {
			return nil, errors.New("not the program that was traced: its build-id is another")
		}
		tab, err := symbol.NewWith(f, symbol.Options{Path: path})
		if err != nil {
			return nil, err
		}
		if _, _, err := tab.Line(0); err != nil {
			tab.Close()
			return nil, err
		}
		return tab, nil
	}()
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return tab, done, nil
}
