//go:build linux

package fentry

// From the file of a library to its patched copy.

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"slices"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
)

// isLibrary tells whether a file can be a shared library for a machine.
func isLibrary(f *os.File, m elf.Machine) bool {
	var head [20]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || !bytes.HasPrefix(head[:], []byte(elf.ELFMAG)) {
		return false
	}
	return elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64 && elf.Type(head[16]) == elf.ET_DYN && elf.Machine(head[18]) == m
}

// soname is the name that a library has given itself, "" if there is none.
func soname(f *os.File) (name string) {
	_ = withImage(f, func(ef *elfio.File) (err error) {
		name, err = ef.Soname()
		return err
	})
	return name
}

// imageIs asks about an ELF file; false: no, or it cannot be read.
func imageIs(f *os.File, is func(*elfio.File) bool) (yes bool) {
	_ = withImage(f, func(ef *elfio.File) error {
		yes = is(ef)
		return nil
	})
	return yes
}

// withImage maps an ELF file, and looks at it.
func withImage(f *os.File, look func(*elfio.File) error) error {
	m, err := mapped.MapFD(int(f.Fd()), f.Name())
	if err != nil {
		return err
	}
	defer m.Close()
	return mapped.Guard(func() error {
		ef, err := elfio.Parse(m.Data)
		if err != nil {
			return err
		}
		return look(ef)
	})
}

// libraryImage is a library that is being patched.
type libraryImage struct {
	about   about
	program *Program
	plan    *patch.Plan // nil: nothing in it can be traced
	untyped bool        // debug information, which can be installed later, would change it
}

// planLibrary plans a library. What it returns refers to the mapped file.
func planLibrary(f *os.File, path string, l *libraries, o *patch.Options, find record.Options,
	capturing *capturing) (im *libraryImage, err error) {
	m, err := mapped.MapFD(int(f.Fd()), path)
	if err != nil {
		return nil, err
	}
	p := &Program{Path: path, symbols: l.symbols, mapped: m}
	p.symbols.Path = path
	im = &libraryImage{program: p}
	if err := p.find(find); err != nil {
		im.close()
		return nil, err
	}
	if p.Patched {
		im.about.Untraced = "it is patched already, and traces itself"
		return im, nil
	}
	if p.Syscalls != nil {
		o.Syscalls = &p.Syscalls
	}
	plan, noted, typed, err := planNoted(capturing, p, o, func() (*patch.Plan, error) { return patch.New(p.File, p.Sites, *o) })
	im.about.noted, im.untyped = noted, !typed
	if err != nil {
		// It will not be otherwise the next time.
		im.about.Untraced = err.Error()
		if errors.Is(err, patch.ErrNoSites) {
			im.about.Unselected, im.about.Empty = p.traceable(), !p.traceable() && !slices.ContainsFunc(p.Sites, couldHave)
		}
		return im, nil
	}
	im.plan, im.about.Image, im.about.Traced = plan, plan.ImageID, plan.Traced()
	return im, nil
}

// couldHave tells whether a function could be traced that was compiled otherwise, or by another tracer.
func couldHave(s record.Site) bool {
	return s.Reason == record.ReasonNoSite || s.Reason == record.ReasonOutOfReach || s.Reason == record.ReasonSignedReturn
}

// write writes the patched copy.
func (im *libraryImage) write(f *os.File) error {
	out, err := im.plan.Output()
	if err == nil {
		_, err = out.WriteTo(f)
	}
	if err == nil {
		err = im.program.mapped.Changed()
	}
	return err
}

func (im *libraryImage) close() { im.program.Close() }
