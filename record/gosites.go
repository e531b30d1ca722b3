package record

import (
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/parallel"
	"github.com/fentry-dev/fentry/record/golang"
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
