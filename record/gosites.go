package record

import (
	"errors"
	"fmt"
	"slices"

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

// GoVersion returns which version of Go has linked an image, "": none has, or it is not known, and where what is known of
// its runtime is from.
func GoVersion(f *elfio.File) (version string, from golang.Source) {
	im, err := golang.ReadNames(f)
	if err != nil {
		return "", golang.Tried
	}
	return im.Version.Name, im.Version.Source
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

// goImage reads the tables of a program that Go has linked, whose own tables say more of its code than any others; nil: it is
// none, or one that is not traced, or only what compilers have prepared is asked for.
func (fd *finder) goImage() (*golang.Image, error) {
	if fd.o.Plain == PlainNone || !golang.Is(fd.im.f) {
		return nil, nil
	}
	im, err := golang.Read(fd.im.f)
	var refused *golang.Refusal
	switch {
	case errors.As(err, &refused):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("finding sites: %w", err)
	}
	return im, nil
}

// goSites finds the sites of a program that Go has linked: those of Go's functions, and of the C functions that are linked with
// them, which are like those of any other image.
func (fd *finder) goSites(im *golang.Image) ([]Site, error) {
	sites := make([]Site, len(im.Funcs))
	parallel.Ranges(len(im.Funcs), piece, func(from, to int) {
		for i := from; i < to; i++ {
			sites[i] = goSite(im, &im.Funcs[i], golang.Options{Runtime: fd.o.GoRuntime})
		}
	})
	if !im.HasC() {
		return sites, nil
	}
	fd.golang = im
	fd.im.funcs = functions{list: goFuncs(fd.im.funcs.list, im)}
	if err := fd.ordinary(); err != nil {
		return nil, fmt.Errorf("finding sites of C functions: %w", err)
	}
	if !im.TracesC() {
		for i := range fd.sites {
			if s := &fd.sites[i]; s.Traceable() {
				s.Reason = ReasonGoC
			}
		}
	}
	sites = slices.DeleteFunc(sites, func(s Site) bool { return !im.HasGo(s.Func) })
	sites = append(sites, fd.sites...)
	sortSites(sites)
	return sites, nil
}

// isGoMark tells the symbol that Go's linker has behind all of its code.
func isGoMark(s *Site) bool { return s.Name == "runtime.etext" && len(s.Aliases) == 0 }

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
