package main

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ar"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// An image is a program's file, mapped and parsed.
type image struct {
	*elfio.File
	file  *mapped.File
	table *symbol.Table // nil until sites
}

// openImage opens the program at path. Errors begin with the path.
func openImage(path string) (*image, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := elfio.Parse(m.Data)
	switch {
	case ar.Is(m.Data):
		err = errors.New("an archive, not a program; fentry mcount --list shows the sites of its members")
	case err == nil && f.Header.Type == elf.ET_REL:
		err = errors.New("an object file, not a program; fentry mcount --list shows its sites")
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &image{File: f, file: m}, nil
}

func (im *image) close() {
	if im.table != nil {
		im.table.Close()
	}
	im.file.Close()
}

// sites finds the functions of the program and where they can be traced. They are valid until close.
func (im *image) sites(o symbol.Options, find record.Options) (sites []record.Site, err error) {
	o.Path = im.file.Path
	if im.table, err = symbol.NewWith(im.File, o); err == nil {
		find.Symbols = im.table
		sites, err = record.Find(im.File, find)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", im.file.Path, err)
	}
	return sites, nil
}
