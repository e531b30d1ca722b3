package record

import (
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/symbol"
)

// GoRefusal says why a program that Go has linked is not traced; "": it is, or Go has not linked it.
func GoRefusal(f *elfio.File) string {
	_, err := golang.Read(f)
	if refused := new(golang.Refusal); errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
}

// GoVersion returns which version of Go has linked an image, "": none has, or it is not known. described: it was not tried,
// and what is known of its runtime is what the image's debug information says.
func GoVersion(f *elfio.File) (version string, described bool) {
	im, err := golang.ReadNames(f)
	if err != nil {
		return "", false
	}
	return im.Version.Name, im.Version.Described
}

// GoCode says of the functions of a Go program what its runtime's tables say. A nil one knows nothing.
type GoCode struct{ im *golang.Image }

// ReadGoCode returns what is known of an image, nil: Go has not linked it, or its version is not known.
func ReadGoCode(f *elfio.File) *GoCode {
	im, err := golang.ReadNames(f)
	if err != nil {
		return nil
	}
	return &GoCode{im}
}

// An Inlined is a call that the compiler has made part of its caller, so it is not recorded.
type Inlined struct {
	Name  string
	Depth int         // 0: the caller is the function itself, else the one before in the list with one less
	Call  symbol.Line // where it is called; File "": it is not known
}

// Inlined returns the calls that are part of the function at an address, each before those inside.
func (g *GoCode) Inlined(addr uint64) []Inlined {
	if g == nil {
		return nil
	}
	f := g.im.Func(addr)
	if f == nil {
		return nil
	}
	var out []Inlined
	for _, c := range g.im.Inlined(f) {
		out = append(out, Inlined{c.Name, c.Depth, symbol.Line(c.Call)})
	}
	return out
}

// Line returns the source line of an address. ok is false if it is not known.
func (g *GoCode) Line(addr uint64) (l symbol.Line, ok bool) {
	if g == nil {
		return symbol.Line{}, false
	}
	at, ok := g.im.Line(addr)
	return symbol.Line(at), ok
}

// goSites finds the sites of a program that Go has linked, whose own tables say more of its code than any others, so they
// take the place of all that has been found. It reports whether they do: not if the program is one that is not traced,
// or if only what compilers have prepared is asked for.
func (fd *finder) goSites() (bool, error) {
	if fd.o.Plain == PlainNone || !golang.Is(fd.im.f) {
		return false, nil
	}
	im, err := golang.Read(fd.im.f)
	var refused *golang.Refusal
	switch {
	case errors.As(err, &refused):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("finding sites: %w", err)
	}
	fd.sites = make([]Site, len(im.Funcs))
	parallel.Ranges(len(im.Funcs), piece, func(from, to int) {
		for i := from; i < to; i++ {
			fd.sites[i] = goSite(im, &im.Funcs[i], golang.Options{Runtime: fd.o.GoRuntime})
		}
	})
	return true, nil
}

// refuseGo leaves Go's functions alone in a program that is refused: what looks like a site there was no compiler's that
// meant it. Where its table cannot be read, all are.
func (fd *finder) refuseGo() {
	if !golang.Is(fd.im.f) {
		return
	}
	im, _ := golang.ReadNames(fd.im.f)
	for i := range fd.sites {
		if s := &fd.sites[i]; s.Traceable() && (im == nil || im.Func(s.Func).Compiled()) {
			s.Reason = ReasonGoImage
		}
	}
}

func goSite(im *golang.Image, f *golang.Func, o golang.Options) Site {
	s := Site{
		Func: f.Entry, Size: f.Next - f.Entry, Name: golang.PrintedName(f.Name), Addr: f.Entry, Source: SourcePclntab,
		Own: im.Own(golang.Package(f.Name)),
	}
	if s.Name != f.Name {
		s.Aliases = []string{f.Name}
	}
	m, why := im.Site(f, o)
	if s.Reason = Reason(why); why == "" {
		s.Kind, s.Moves = KindGo, &m
	}
	return s
}
