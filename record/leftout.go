package record

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// LeftOut is a list of functions, by image and address, that are not to be traced whatever else is asked for: those that
// a recorder has switched off in a run, so that the next one leaves them out from the beginning, and no other. Names
// would not do: several functions of a program can have one, and those of a stripped program have none.
//
// As text, a line "image BUILD-ID PATH" begins the functions of an image, the build-id in hex digits, or "-" if it has
// none: then the path is what counts. Each function is a line "ADDRESS NAME", the address in hex with 0x as in the image's
// file, the name for people. Empty lines and lines that begin with # are skipped.
type LeftOut struct {
	images map[string]*leftOutImage // by build-id, or by path
}

type leftOutImage struct {
	buildID, path string
	names         map[uint64]string // by address
}

// image returns the functions of an image; nil: it has none in the list.
func (l *LeftOut) image(buildID, path string) *leftOutImage {
	if l == nil {
		return nil
	}
	return l.images[cmp.Or(buildID, path)]
}

// add returns the functions of an image, to which some may be added.
func (l *LeftOut) add(buildID, path string) *leftOutImage {
	im := l.image(buildID, path)
	if im == nil {
		im = &leftOutImage{buildID, path, make(map[uint64]string)}
		if l.images == nil {
			l.images = make(map[string]*leftOutImage)
		}
		l.images[cmp.Or(buildID, path)] = im
	}
	return im
}

// Add adds the function at an address of an image, whose build-id is in lower-case hex digits, or "".
func (l *LeftOut) Add(buildID, path string, addr uint64, name string) {
	l.add(buildID, path).names[addr] = name
}

// Image reports whether the list has functions of an image.
func (l *LeftOut) Image(buildID, path string) bool { return l.image(buildID, path) != nil }

// Has reports whether the list has the function of an image at an address.
func (l *LeftOut) Has(buildID, path string, addr uint64) bool {
	if im := l.image(buildID, path); im != nil {
		_, ok := im.names[addr]
		return ok
	}
	return false
}

// Key returns a text that differs between lists that leave out other functions.
func (l *LeftOut) Key() string {
	if l == nil {
		return ""
	}
	var b strings.Builder
	_, _ = l.WriteTo(&b) // a Builder has no errors
	return b.String()
}

// WriteTo writes the list as text, in the order of build-ids, or paths, and addresses.
func (l *LeftOut) WriteTo(w io.Writer) (int64, error) {
	var b []byte
	for _, key := range slices.Sorted(maps.Keys(l.images)) {
		im := l.images[key]
		b = fmt.Appendf(b, "image %s %s\n", cmp.Or(im.buildID, "-"), oneLine(im.path))
		for _, addr := range slices.Sorted(maps.Keys(im.names)) {
			b = fmt.Appendf(b, "%#x %s\n", addr, oneLine(im.names[addr]))
		}
	}
	n, err := w.Write(b)
	return int64(n), err
}

// oneLine replaces what would end a line, or not come back from one.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s))
}

// ReadLeftOut reads a list. Errors begin with the line's number.
func ReadLeftOut(r io.Reader) (*LeftOut, error) {
	l := new(LeftOut)
	var im *leftOutImage
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	n := 0
	for sc.Scan() {
		n++
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		if word == "image" {
			id, path, _ := strings.Cut(rest, " ")
			if id == "-" {
				id = ""
			}
			if id+path == "" || strings.Trim(id, "0123456789abcdef") != "" {
				return nil, fmt.Errorf("line %d: an image needs its build-id, or - and its path", n)
			}
			im = l.add(id, path)
			continue
		}
		addr, err := strconv.ParseUint(strings.TrimPrefix(word, "0x"), 16, 64)
		switch {
		case err != nil || !strings.HasPrefix(word, "0x"):
			return nil, fmt.Errorf("line %d: %q is no address such as 0x401000", n, word)
		case im == nil:
			return nil, fmt.Errorf("line %d: a function in front of the first line \"image BUILD-ID PATH\"", n)
		}
		im.names[addr] = strings.TrimSpace(rest)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if len(l.images) == 0 {
		return nil, errors.New("lists no functions")
	}
	return l, nil
}
