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
	"github.com/fentry-dev/fentry/symbol"
)

// isLibrary tells whether a file can be a shared library for this machine.
func isLibrary(f *os.File) bool {
	var head [20]byte
	if _, err := f.ReadAt(head[:], 0); err != nil || !bytes.HasPrefix(head[:], []byte(elf.ELFMAG)) {
		return false
	}
	return elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64 && elf.Type(head[16]) == elf.ET_DYN
}

// soname is the name that a library has given itself, "" if there is none.
func soname(f *os.File) (name string) {
	m, err := mapped.MapFD(int(f.Fd()), f.Name())
	if err != nil {
		return ""
	}
	defer m.Close()
	_ = mapped.Guard(func() error {
		ef, err := elfio.Parse(m.Data)
		if err == nil {
			name, err = ef.Soname()
		}
		return err
	})
	return name
}

// libraryImage is a library that is being patched.
type libraryImage struct {
	about about
	file  *mapped.File
	table *symbol.Table
	plan  *patch.Plan // nil: nothing in it can be traced
}

// planLibrary plans a library. What it returns refers to the mapped file.
func planLibrary(f *os.File, path string, l *libraries, o *patch.Options) (im *libraryImage, err error) {
	im = new(libraryImage)
	defer func() {
		if err != nil {
			im.close()
		}
	}()
	if im.file, err = mapped.MapFD(int(f.Fd()), path); err != nil {
		return im, err
	}
	ef, err := elfio.Parse(im.file.Data)
	if err != nil {
		return im, err
	}
	if _, err := patch.Inspect(ef); err == nil {
		im.about.Untraced = "it is patched already, and traces itself"
		return im, nil
	} else if !errors.Is(err, patch.ErrNotPatched) {
		return im, err
	}
	names := l.symbols
	names.Path = path
	if im.table, err = symbol.NewWith(ef, names); err != nil {
		return im, err
	}
	find := l.find
	find.Symbols, find.Named = im.table, find.Named.In(path)
	sites, err := record.Find(ef, find)
	if err != nil {
		return im, err
	}
	plan, err := patch.New(ef, sites, *o)
	if err != nil {
		// It will not be otherwise the next time.
		im.about.Untraced = err.Error()
		im.about.Unselected = errors.Is(err, patch.ErrNoSites) &&
			slices.ContainsFunc(sites, func(s record.Site) bool { return s.Traceable() })
		return im, nil
	}
	im.plan, im.about.Image, im.about.Traced = plan, plan.ImageID, plan.Traced()
	return im, nil
}

// write writes the patched copy.
func (im *libraryImage) write(f *os.File) error {
	out, err := im.plan.Output()
	if err == nil {
		_, err = out.WriteTo(f)
	}
	if err == nil {
		err = im.file.Changed()
	}
	return err
}

func (im *libraryImage) close() {
	if im.table != nil {
		im.table.Close()
	}
	im.file.Close()
}
