package symbol

import (
	"io"

	"github.com/fentry-dev/fentry/internal/symfile"
)

// SymFile is the content of a .sym file: which function each site id of a program image means. It makes a trace
// readable without the image.
type SymFile = symfile.File

// SymEntry is one function of a .sym file. Addresses are as in the image's file.
type SymEntry = symfile.Entry

// MaxSymID is the first id that is not a site's but an event with a meaning of its own.
const MaxSymID = symfile.MaxID

// WriteSym writes a .sym file: lines "# key: value", then one line a function, sorted by id, of
//
//	id TAB function TAB size TAB site TAB kind TAB name
//
// with hexadecimal addresses and size. Entries with id 0, functions that are not traced, keep their order; any other id
// may appear once.
func WriteSym(w io.Writer, s *SymFile) error { return symfile.Write(w, s) }

// ReadSym reads what WriteSym writes. Keys it does not know are skipped. Errors name the line.
func ReadSym(r io.Reader) (*SymFile, error) { return symfile.Read(r) }
