package names

// The text format of .sym files. A recorder writes one for each image as it sees it, because later the program may have
// been replaced or be on another machine: with these files a trace is readable without its programs.

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unsafe"

	"github.com/fentry-dev/fentry/internal/format"
)

// maxLine bounds a line of a .sym file, newline included. The longest symbol names seen in real programs have about
// 100 kB.
const maxLine = 4 << 20

// Write writes a .sym file: lines "# key: value", then one line per function, sorted by id, of
//
//	id TAB function TAB size TAB site TAB kind TAB name
//
// with hexadecimal addresses and size. A key capture has the id of a function, a blank and what is captured of its
// calls. Functions with id 0, which are not traced, keep their order; any other id may appear only once. Aliases come first, as functions of kind "alias" that are not traced, at the address of theirs.
func Write(w io.Writer, s *Table) error {
	if s.Linked {
		return errors.New("ids that are distances have no .sym file")
	}
	entries := s.Funcs
	if !sort.SliceIsSorted(entries, func(i, j int) bool { return entries[i].ID < entries[j].ID }) {
		entries = append([]Func(nil), entries...)
		sort.SliceStable(entries, func(i, j int) bool { return entries[i].ID < entries[j].ID })
	}
	bw := bufio.NewWriterSize(w, 64<<10)
	fmt.Fprintf(bw, "# path: %s\n", escape(s.Path))
	fmt.Fprintf(bw, "# build-id: %x\n", s.BuildID)
	fmt.Fprintf(bw, "# image: %016x\n", s.Image)
	fmt.Fprintf(bw, "# machine: %s\n", escape(s.Machine))
	fmt.Fprintf(bw, "# entry: %x\n", s.Entry)
	if s.Module != "" {
		fmt.Fprintf(bw, "# module: %s\n", escape(s.Module))
	}
	if s.Go != "" {
		fmt.Fprintf(bw, "# go: %s\n", escape(s.Go))
	}
	for _, id := range slices.Sorted(maps.Keys(s.Captures)) {
		if _, err := fmt.Fprintf(bw, "# capture: %d %s\n", id, escape(s.Captures[id])); err != nil {
			return err
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(s.Aliases)) {
		for _, name := range s.Aliases[addr] {
			if err := writeFunc(bw, &Func{Addr: addr, Site: addr, Kind: kindAlias, Name: name}); err != nil {
				return err
			}
		}
	}
	for i := range entries {
		e := &entries[i]
		if e.ID > format.IDMax {
			return fmt.Errorf("function at %#x: id %#x is reserved", e.Addr, e.ID)
		}
		if e.ID != 0 && i > 0 && entries[i-1].ID == e.ID {
			return fmt.Errorf("functions at %#x and %#x have the same id %d", entries[i-1].Addr, e.Addr, e.ID)
		}
		if err := writeFunc(bw, e); err != nil {
			return err
		}
	}
	return bw.Flush()
}

// writeFunc writes a function's line.
func writeFunc(bw *bufio.Writer, e *Func) error {
	line := strconv.AppendUint(bw.AvailableBuffer(), uint64(e.ID), 10)
	for _, v := range [...]uint64{e.Addr, e.Size, e.Site} {
		line = append(line, '\t')
		line = strconv.AppendUint(line, v, 16)
	}
	line = append(line, '\t')
	line = append(line, escape(e.Kind)...)
	line = append(line, '\t')
	line = append(line, escape(e.Name)...)
	line = append(line, '\n')
	if len(line) > maxLine {
		return fmt.Errorf("function at %#x: a name of %d bytes is too long for a .sym file", e.Addr, len(e.Name))
	}
	_, err := bw.Write(line)
	return err
}

// kindAlias is the kind of a line that has another name of the function at an address.
const kindAlias = "alias"

func (f *Func) isAlias() bool { return f.ID == 0 && f.Kind == kindAlias }

// Read reads what [Write] writes. Unknown keys are skipped. Errors name the line. [Load] reads the same to less memory.
func Read(r io.Reader) (*Table, error) {
	s := &Table{}
	err := readFuncs(bufio.NewReaderSize(r, 64<<10), s, func(_ []byte, f Func) error {
		f.Kind, f.Name = strings.Clone(f.Kind), strings.Clone(f.Name)
		if f.isAlias() {
			s.Alias(f.Addr, f.Name)
			return nil
		}
		s.Funcs = append(s.Funcs, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// readFuncs reads a .sym file: the header to s, functions one by one to fn. The line and the strings of the function
// are good only during the call.
func readFuncs(br *bufio.Reader, s *Table, fn func(line []byte, f Func) error) error {
	var at position
	var long []byte
	for n := 1; ; n++ {
		line, err := readLine(br, &long)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = s.line(line, &at, fn)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// position is what the lines so far matter for those to come.
type position struct {
	id       uint32 // of the newest function
	captured int    // bytes about what is captured
}

// line takes a line of a .sym file.
func (s *Table) line(line []byte, at *position, fn func(line []byte, f Func) error) error {
	if len(line) == 0 {
		return nil
	}
	if line[0] == '#' {
		return s.header(string(line), at)
	}
	e, err := parseFunc(unsafe.String(unsafe.SliceData(line), len(line)))
	if err != nil {
		return err
	}
	if e.ID < at.id || e.ID == at.id && e.ID != 0 {
		return fmt.Errorf("id %d after %d: ids must ascend", e.ID, at.id)
	}
	at.id = e.ID
	return fn(line, e)
}

// readLine reads a line without its newline, which is good until the next call; io.EOF when there is none. long is the
// memory for lines that are longer than the reader's.
func readLine(br *bufio.Reader, long *[]byte) ([]byte, error) {
	*long = (*long)[:0]
	for {
		part, err := br.ReadSlice('\n')
		switch {
		case (err == nil || err == bufio.ErrBufferFull) && len(*long)+len(part) > maxLine:
			return nil, fmt.Errorf("longer than %d bytes", maxLine)
		case err == bufio.ErrBufferFull:
			*long = append(*long, part...)
			continue
		case err == io.EOF && len(*long)+len(part) > 0:
			return nil, errors.New("the file ends inside a line")
		case err != nil:
			return nil, err
		}
		part = part[:len(part)-1]
		if len(*long) == 0 {
			return part, nil
		}
		*long = append(*long, part...)
		return *long, nil
	}
}

func (s *Table) header(line string, at *position) error {
	key, value, ok := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
	if !ok {
		key, value = strings.TrimSuffix(key, ":"), ""
	}
	var err error
	switch key {
	case "path":
		s.Path, err = unescape(value)
	case "build-id":
		s.BuildID, err = hex.DecodeString(value)
		if len(s.BuildID) == 0 {
			s.BuildID = nil
		}
	case "image":
		s.Image, err = strconv.ParseUint(value, 16, 64)
	case "machine":
		s.Machine, err = unescape(value)
	case "module":
		s.Module, err = unescape(value)
	case "go":
		s.Go, err = unescape(value)
	case "entry":
		s.Entry, err = strconv.ParseUint(value, 16, 64)
	case "capture":
		err = s.capture(value, at)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// maxCaptures bounds the text about what is captured in bytes.
const maxCaptures = 64 << 20

// capture takes what is captured of a function's calls.
func (s *Table) capture(value string, at *position) error {
	number, text, _ := strings.Cut(value, " ")
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil || id == 0 || id > format.IDMax {
		return fmt.Errorf("bad id %q", clip(number))
	}
	if text, err = unescape(text); err != nil {
		return err
	}
	if at.captured += len(text) + 64; at.captured > maxCaptures {
		return fmt.Errorf("more than %d bytes", maxCaptures)
	}
	if s.Captures == nil {
		s.Captures = make(map[uint32]string)
	}
	s.Captures[uint32(id)] = text
	return nil
}

func parseFunc(line string) (Func, error) {
	var f [6]string
	rest := line
	for i := range f {
		var ok bool
		f[i], rest, ok = strings.Cut(rest, "\t")
		if ok != (i < len(f)-1) {
			return Func{}, fmt.Errorf("want 6 fields separated by tabs in %q", clip(line))
		}
	}
	id, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil || id > format.IDMax {
		return Func{}, fmt.Errorf("bad id %q", clip(f[0]))
	}
	e := Func{ID: uint32(id)}
	for i, p := range []*uint64{&e.Addr, &e.Size, &e.Site} {
		if *p, err = strconv.ParseUint(f[i+1], 16, 64); err != nil {
			return Func{}, fmt.Errorf("bad hexadecimal number %q", clip(f[i+1]))
		}
	}
	if e.Kind, err = unescape(f[4]); err != nil {
		return Func{}, err
	}
	if e.Name, err = unescape(f[5]); err != nil {
		return Func{}, err
	}
	return e, nil
}

// escape writes the bytes that would end a field or a line, and backslashes, as \xHH. Everything else, also bytes that
// are not UTF-8, stays.
func escape(s string) string {
	if !strings.ContainsFunc(s, special) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if special(rune(s[i])) {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

func special(r rune) bool { return r < 0x20 || r == '\\' || r == 0x7f }

func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if len(s)-i < 4 || s[i+1] != 'x' {
			return "", fmt.Errorf("bad escape in %q", clip(s))
		}
		v, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil {
			return "", fmt.Errorf("bad escape in %q", clip(s))
		}
		b.WriteByte(byte(v))
		i += 3
	}
	return b.String(), nil
}

// clip shortens text of the input for an error message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "..."
	}
	return s
}
