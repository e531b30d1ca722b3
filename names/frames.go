package names

import (
	"encoding/hex"
	"errors"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/symbol"
)

// Frames holds the functions of an image by address, with those that are inlined where debug information tells. It is
// safe for concurrent use.
type Frames struct {
	tab  *symbol.Table
	file *mapped.File
}

// FindFrames opens the file of an image, which must have the image's build-id.
func FindFrames(im Image) (*Frames, error) {
	var out *Frames
	err := im.eachFile(func(m *mapped.File, f *elfio.File) error {
		if hex.EncodeToString(f.BuildID()) != im.BuildID { // a patched file has one of its own
			if err := im.check(f); err != nil {
				return err
			}
		}

		tab, err := symbol.NewWith(f, symbol.Options{Path: m.Path})
		if err != nil {
			return err
		}
		out = &Frames{tab, m}
		return nil
	})
	return out, err
}

// At returns the functions at an address as in the file, with their raw names and lines, innermost first; nil if it is
// in none that is known.
func (f *Frames) At(addr uint64) []symbol.Frame {
	fn, ok := f.tab.Lookup(addr)
	if !ok {
		return nil
	}
	name := fn.Name
	if name == "" {
		name = symbol.NameAt(fn.Addr)
	}
	frames, err := f.tab.Frames(addr)
	if err != nil || len(frames) == 0 {
		return []symbol.Frame{{Func: name}}
	}
	frames[len(frames)-1].Func = name
	return frames
}

// Close releases the file.
func (f *Frames) Close() error { return errors.Join(f.tab.Close(), f.file.Close()) }
