package names

// A .sym file in memory, for readers of traces.
//
// A program has up to a million functions, and a trace shows some hundreds of them. As a [Table] each takes 90 bytes
// besides its name, and a file that somebody has made of the shortest lines there are, 349 MB of them, took 4.3 GB. So
// the text stays text: a lookup finds the block of a few lines that has the id, by bisection, and reads those lines.
// Memory is the size of what is kept, which are the lines of functions that have an id, and 12 bytes for each block.
// Everything is checked once, line by line, as it comes from the file, so a lookup cannot fail later. Reading lines from
// the file at every lookup would need no memory, but a descriptor for each image and an answer for a file that changes.

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/fentry-dev/fentry/record/golang"
)

const (
	// blockLines is how many functions a lookup may have to pass.
	blockLines = 32
	// maxPiece is the size of a piece of text: memory is taken piece by piece and never copied.
	maxPiece = 1 << 20
	// MaxSymFile is how much text of a .sym file a SymFile holds in bytes. A program of a million functions whose names
	// have 200 bytes has 250 MB.
	MaxSymFile = 1 << 30
)

// A SymFile is a .sym file that has been read: a table by id that takes little more memory than its text. It is safe
// for concurrent use.
type SymFile struct {
	Head   Table    // all but the functions
	pieces [][]byte // whole lines
	blocks []symBlock
	last   uint32 // largest id
	count  int    // lines in the last block
	size   int64  // of all lines
}

// A symBlock is where up to blockLines functions begin, and the id of the first.
type symBlock struct{ id, piece, off uint32 }

// ErrTooLong is returned for a .sym file with more text than the limit given to [Load].
var ErrTooLong = errors.New("too many functions to be kept in memory")

// Load reads what [Write] writes, at most limit bytes of functions' lines (and [MaxSymFile]). Errors name the line.
func Load(r io.Reader, limit int64) (*SymFile, error) {
	s := new(SymFile)
	br := bufio.NewReaderSize(r, 64<<10)
	limit = min(limit, MaxSymFile)
	err := readFuncs(br, &s.Head, func(line []byte, f Func) error {
		if f.ID == 0 && !f.isAlias() {
			return nil
		}
		if s.size += int64(len(line)) + 1; s.size > limit {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLong, limit)
		}
		if f.isAlias() {
			s.Head.Alias(f.Addr, strings.Clone(f.Name))
			return nil
		}
		s.add(line, f.ID)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// add keeps a function's line.
func (s *SymFile) add(line []byte, id uint32) {
	n := len(s.pieces) - 1
	if n < 0 || len(s.pieces[n])+len(line) >= cap(s.pieces[n]) {
		room := 4 << 10
		if n >= 0 {
			room = min(2*cap(s.pieces[n]), maxPiece)
		}
		s.pieces = append(s.pieces, make([]byte, 0, max(room, len(line)+1)))
		n++
		s.count = 0
	}
	if s.count == 0 {
		s.blocks = append(s.blocks, symBlock{id, uint32(n), uint32(len(s.pieces[n]))})
	}
	s.count = (s.count + 1) % blockLines
	s.last = id
	s.pieces[n] = append(append(s.pieces[n], line...), '\n')
}

// Func returns the function with the given id. ok is false if there is none.
func (s *SymFile) Func(id uint32) (f Func, ok bool) {
	i, found := slices.BinarySearchFunc(s.blocks, id, func(b symBlock, id uint32) int { return cmp.Compare(b.id, id) })
	if !found {
		i--
	}
	if id == 0 || i < 0 {
		return Func{}, false
	}
	b := s.blocks[i]
	for line := range lines(s.pieces[b.piece][b.off:]) {
		number, _, _ := strings.Cut(line, "\t")
		if n, err := strconv.ParseUint(number, 10, 32); err != nil || uint32(n) > id {
			break
		} else if uint32(n) == id {
			f, err := parseFunc(line)
			return f, err == nil
		}
	}
	return Func{}, false
}

// lines are the lines of a piece.
func lines(piece []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for text := unsafe.String(unsafe.SliceData(piece), len(piece)); text != ""; {
			line, rest, _ := strings.Cut(text, "\n")
			if !yield(line) {
				return
			}
			text = rest
		}
	}
}

// Traced yields the functions that have ids, in their order.
func (s *SymFile) Traced() iter.Seq[Func] {
	return func(yield func(Func) bool) {
		for _, piece := range s.pieces {
			for line := range lines(piece) {
				if f, err := parseFunc(line); err != nil || !yield(f) {
					return
				}
			}
		}
	}
}

// AliasesOf returns the other names of a function.
func (s *SymFile) AliasesOf(f *Func) []string { return s.Head.AliasesOf(f) }

// GoVersion is [Table.GoVersion].
func (s *SymFile) GoVersion() (string, golang.Source) { return s.Head.GoVersion() }

// IsOwn is [Table.IsOwn].
func (s *SymFile) IsOwn(f *Func) bool { return s.Head.IsOwn(f) }

// MaxID returns the largest id, 0 if there is none.
func (s *SymFile) MaxID() uint32 { return s.last }

// Size is that of the functions' lines in bytes.
func (s *SymFile) Size() int64 { return s.size }
