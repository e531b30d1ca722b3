package symbol

// What several debug files have in common. Debian runs dwz over the debug files of a source package: entries and
// strings that more than one of them has are moved to a file of their own, and .gnu_debugaltlink says which, by name and
// build-id. References to it have forms of their own (DW_FORM_GNU_ref_alt, DW_FORM_GNU_strp_alt), which package
// debug/dwarf reads as offsets and leaves to its user. Without that file, inlined functions have no names and files no
// directories; everything else is there.

import (
	"bytes"
	"debug/dwarf"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
)

// altDWARF is the common part of debug information. nil: there is none.
type altDWARF struct {
	data *dwarf.Data
	str  []byte // .debug_str
}

// altLink reads .gnu_debugaltlink: a file name, ended by a zero byte, and that file's build-id.
func altLink(f *elfio.File) (name string, id []byte, ok bool) {
	i := f.SectionIndex(".gnu_debugaltlink")
	if i < 0 {
		return "", nil, false
	}
	b, err := f.SectionData(i)
	if err != nil {
		return "", nil, false
	}
	before, id, ok := bytes.Cut(b, []byte{0})
	return string(before), id, ok && len(before) > 0 && len(id) > 1
}

// altFile finds the file that the debug file f at path refers to; nil: it is not there.
func (t *Table) altFile(f *elfio.File, path string) *elfio.File {
	name, id, ok := altLink(f)
	if !ok {
		return nil
	}
	places := []string{name}
	if !filepath.IsAbs(name) {
		places = nil
		if real, err := filepath.EvalSymlinks(path); err == nil {
			places = append(places, filepath.Join(filepath.Dir(real), name)) // as gdb has it
		}
	}
	for _, d := range t.debugDirs() {
		places = append(places, filepath.Join(d, ".build-id", buildIDName(id)))
	}
	for _, p := range places {
		if f := t.tryAlt(p, id); f != nil {
			return f
		}
	}
	if t.opts.Fetch != nil {
		if p, err := t.opts.Fetch(id); err == nil {
			return t.tryAlt(p, id)
		}
	}
	return nil
}

// buildIDName is where the file with a build-id is below a directory .build-id.
func buildIDName(id []byte) string { return fmt.Sprintf("%x/%x.debug", id[:1], id[1:]) }

var errOtherFile = errors.New("another file")

// tryAlt maps a file and checks that it is the one with the build-id.
func (t *Table) tryAlt(path string, id []byte) *elfio.File {
	m, err := mapped.Open(path)
	if err != nil {
		return nil
	}
	var f *elfio.File
	err = mapped.Guard(func() (err error) {
		if f, err = elfio.Parse(m.Data); err == nil && !bytes.Equal(f.BuildID(), id) {
			err = errOtherFile
		}
		return err
	})
	if err != nil {
		m.Close()
		return nil
	}
	t.maps = append(t.maps, m)
	return f
}

// loadAlt reads the common part of debug information; nil if it cannot be read, which takes away names of inlined
// functions and nothing else.
func loadAlt(f *elfio.File) *altDWARF {
	if f == nil {
		return nil
	}
	sec := make(map[string][]byte)
	for _, name := range []string{"abbrev", "info", "str", "line_str"} {
		b, err := DebugSection(f, name)
		if err != nil {
			return nil
		}
		sec[name] = b
	}
	d, err := dwarf.New(sec["abbrev"], nil, nil, sec["info"], nil, nil, nil, sec["str"])
	if err != nil {
		return nil
	}
	if sec["line_str"] != nil && d.AddSection(".debug_line_str", sec["line_str"]) != nil {
		return nil
	}
	return &altDWARF{d, sec["str"]}
}

// resolve puts the strings themselves in place of references to the common file, in an entry that was read just now.
func (a *altDWARF) resolve(e *dwarf.Entry) {
	if a == nil || e == nil {
		return
	}
	for i := range e.Field {
		f := &e.Field[i]
		if f.Class != dwarf.ClassStringAlt {
			continue
		}
		at, ok := f.Val.(int64)
		if !ok || at < 0 || at >= int64(len(a.str)) {
			continue
		}
		if s, _, ok := bytes.Cut(a.str[at:], []byte{0}); ok {
			f.Class, f.Val = dwarf.ClassString, string(s)
		}
	}
}

// entry reads the entry that an attribute of one in data refers to, and says in which data it is.
func (a *altDWARF) entry(data *dwarf.Data, e *dwarf.Entry, attr dwarf.Attr) (*dwarf.Data, *dwarf.Entry) {
	f := e.AttrField(attr)
	if f == nil {
		return nil, nil
	}
	var at dwarf.Offset
	switch v := f.Val.(type) {
	case dwarf.Offset:
		at = v
	case int64:
		if a == nil || f.Class != dwarf.ClassReferenceAlt || v < 0 || v > 1<<32-1 {
			return nil, nil
		}
		data, at = a.data, dwarf.Offset(v)
	default:
		return nil, nil
	}
	r := data.Reader()
	r.Seek(at)
	next, err := r.Next()
	if err != nil || next == nil {
		return nil, nil
	}
	a.resolve(next)
	return data, next
}
