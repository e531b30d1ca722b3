package main

import (
	"fmt"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/record"
)

// An image is a program's file, mapped and parsed.
type image struct {
	*elfio.File
	file *mapped.File
}

// openImage opens the program at path. Errors begin with the path.
func openImage(path string) (*image, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := elfio.Parse(m.Data)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &image{f, m}, nil
}

func (im *image) close() { im.file.Close() }

// sites finds the functions of the program and where they can be traced.
func (im *image) sites() ([]record.Site, error) {
	sites, err := record.Find(im.File, record.Options{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", im.file.Path, err)
	}
	return sites, nil
}
