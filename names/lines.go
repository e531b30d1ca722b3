package names

import (
	"errors"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/symbol"
)

// Lines holds the source lines of an image, from the debug information in its file or in a separate one or, of a Go
// program without, from the table that its runtime has. They are read on demand. Lines is safe for concurrent use.
type Lines struct {
	tab  *symbol.Table
	file *mapped.File

	golang *golang.Image // of a Go program without debug information, whose runtime has a table of them; else nil
}

// FindLines opens the file of an image for its source lines. If the image has none, the error wraps
// [symbol.ErrNoLines].
func FindLines(im Image) (*Lines, error) {
	var l *Lines
	err := im.eachFile(func(m *mapped.File, f *elfio.File) error {
		if err := im.check(f); err != nil {
			return err
		}
		tab, err := symbol.NewWith(f, symbol.Options{Path: m.Path})
		if err != nil {
			return err
		}
		_, _, err = tab.Line(0)
		var im *golang.Image
		if errors.Is(err, symbol.ErrNoLines) {
			im, _ = golang.ReadNames(f)
		}
		if err != nil && im == nil {
			tab.Close()
			return err
		}
		l = &Lines{tab, m, im}
		return nil
	})
	return l, err
}

// At returns the source line of an address, as in the file. ok is false if the line is unknown.
func (l *Lines) At(addr uint64) (line symbol.Line, ok bool, err error) {
	if l.golang == nil {
		return l.tab.Line(addr)
	}
	err = mapped.Guard(func() error {
		var at golang.Place
		at, ok = l.golang.Line(addr)
		line = symbol.Line{File: at.File, Line: at.Line}
		return nil
	})
	return line, ok, err
}

// Frames returns the functions active at an address: those inlined there, innermost first, then the one whose code it
// is.
func (l *Lines) Frames(addr uint64) ([]symbol.Frame, error) { return l.tab.Frames(addr) }

// Close releases the files.
func (l *Lines) Close() error { return errors.Join(l.tab.Close(), l.file.Close()) }
