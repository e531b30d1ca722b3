package trace

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/names"
)

// Names of functions and places in the source. What an id means, and which file is an image's, is package names' to
// say; here is when it is asked: for names on opening, because every reader wants them, and for lines at the first
// function that is asked for, because debug information is large and few readers want it.

// A Func is what a symbol table says about a traced function. Addresses are link-time addresses.
type Func = names.Func

// A SymTable looks up the functions of an image by id. A [names.Table] is one.
type SymTable interface {
	// Func returns the function with the given id. ok is false if there is none.
	Func(id uint32) (f Func, ok bool)
}

// Aliases returns the other names of a function of the image at a position in Trace.Images, nil if it has none: linkers
// fold functions with identical code.
func (t *Trace) Aliases(image int, f Func) []string {
	if image >= len(t.syms) {
		return nil
	}
	if tab, ok := t.syms[image].(interface{ AliasesOf(*Func) []string }); ok {
		return tab.AliasesOf(&f)
	}
	return nil
}

// IsOwn reports whether a function of a Go program is in its package main or in its main module; those of other programs
// are not.
func (t *Trace) IsOwn(image int, f Func) bool {
	if image >= len(t.syms) || t.Images[image].Stacks != StacksGoroutines {
		return false
	}
	tab, ok := t.syms[image].(interface{ IsOwn(*Func) bool })
	return ok && tab.IsOwn(&f)
}

// GoRuntime returns which version of Go has linked the image at a position in Trace.Images, "": none has, or it is not known, and
// where what is known of its runtime is from.
func (t *Trace) GoRuntime(image int) (version string, from names.GoSource) {
	if image < len(t.syms) {
		if tab, ok := t.syms[image].(interface {
			GoVersion() (string, names.GoSource)
		}); ok {
			return tab.GoVersion()
		}
	}
	return "", names.GoTried
}

// loadSymbols finds each image's functions: the directory's .sym file, or what
// Options.Resolve has.
func (t *Trace) loadSymbols(o Options) {
	resolve := o.Resolve
	if resolve == nil {
		resolve = findSymbols
	}
	t.syms = make([]SymTable, len(t.Images))
	t.cache = make([]nameCache, len(t.Images))
	t.lines = make([]imageLines, len(t.Images))
	t.codes = make([]code, len(t.Images))
	room := int64(names.MaxSymFile) // for all images together
	for i := range t.Images {
		im := &t.Images[i]
		tab, err := openSym(t.dir, im.ID.String()+SymExt, room)
		switch {
		case err == nil:
			t.syms[i] = tab
			room -= tab.Size()
			head := &tab.Head
			im.merge(&Image{Path: head.Path, BuildID: hex.EncodeToString(head.BuildID), Machine: head.Machine})
			if im.Sites == 0 {
				im.Sites = int(tab.MaxID())
			}
		case !missing(err):
			t.problem(err)
		}
		if t.syms[i] == nil {
			tab, err := resolve(*im)
			if err != nil && im.traced() {
				t.problem(fmt.Errorf("image %s: no symbols: %w", im.label(), err))
			} else if err == nil {
				t.syms[i] = tab
			}
		}
		// Without symbols names are made at once, and a range of billions of ids is 16 bytes of the file.
		if t.syms[i] != nil {
			t.cache[i] = newNameCache(im.Sites)
			t.captures = t.captures || len(capturesOf(t.syms[i])) > 0
		}
	}
}

// findSymbols is the default of Options.Resolve: the program itself knows its functions, if fentry has patched it or it
// was linked with the tracer.
func findSymbols(im Image) (SymTable, error) {
	tab, err := names.Find(im.file())
	if err != nil {
		return nil, err
	}
	return tab, nil
}

// file says which file is the image's.
func (im *Image) file() names.Image {
	paths := []string{im.Path, im.Exe}
	if im.File != "" {
		paths = []string{im.File, im.Path}
	}
	return names.Image{ID: uint64(im.ID), BuildID: im.BuildID, Linked: im.IDs == OffsetIDs, Paths: paths}
}

// ModeSampled is the mode of a program of which only stacks were taken.
const ModeSampled = "sampled"

// traced reports whether functions of the image may be in the trace: not of one that was only sampled, nor of what
// samples of programs that are traced belong to.
func (im *Image) traced() bool {
	return im.Mode != ModeSampled && (im.ID != 0 || im.Path != "")
}

func (im *Image) label() string {
	if im.Path != "" {
		return im.Path
	}
	return im.ID.String()
}

func openSym(d *safefile.Dir, name string, room int64) (*names.SymFile, error) {
	if d == nil {
		return nil, fs.ErrNotExist
	}
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s, err := names.Load(f, room)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return s, nil
}

// FunctionName returns the name of a function of an image, as the symbol file in a trace's directory has it; "" if it is
// not known. It is for who does not read the trace.
func FunctionName(dir string, image ImageID, id uint32) string {
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return ""
	}
	defer d.Close()
	tab, err := openSym(d, image.String()+SymExt, names.MaxSymFile)
	if err != nil {
		return ""
	}
	f, _ := tab.Func(id)
	return f.Name
}

// errNoFunctions: see Problems for the reason.
var errNoFunctions = errors.New("the program's functions are not known, nor their source lines")

// imageLines are the source lines of an image, opened when first asked for.
type imageLines struct {
	once  sync.Once
	lines *names.Lines
	err   error
}

// Source returns where a function begins in the program's source. file is "" if that is unknown. The programs' files
// are opened on demand. An error is about the image and is returned for each of its functions: its file is missing or
// has been replaced, or has no line information (the error then wraps symbol.ErrNoLines).
func (t *Trace) Source(id FuncID) (file string, line int, err error) {
	if id.ID == 0 || int(id.Image) >= len(t.lines) {
		return "", 0, nil
	}
	l := &t.lines[id.Image]
	l.once.Do(func() {
		im := t.Images[id.Image].file()
		switch tab := t.syms[id.Image].(type) {
		case *names.Table:
			im.Entry = tab.Entry
		case *names.SymFile:
			im.Entry = tab.Head.Entry
		default: // no file has turned out to be the image
			l.err = errNoFunctions
			return
		}
		l.lines, l.err = names.FindLines(im)
	})
	if l.err != nil {
		return "", 0, l.err
	}
	fn := t.Func(id)
	if fn.Addr == 0 {
		return "", 0, nil
	}
	// An error here is about one unit's table, which is as good as no line.
	at, ok, err := l.lines.At(fn.Addr)
	if err != nil || !ok {
		return "", 0, nil
	}
	return at.File, at.Line, nil
}

// closeLines releases the programs.
func (t *Trace) closeLines() (err error) {
	for i := range t.lines {
		if l := t.lines[i].lines; l != nil {
			if e := l.Close(); err == nil {
				err = e
			}
		}
	}
	return err
}
