package symbol

// Debug information beside the objects. With -gsplit-dwarf a program has a skeleton of each unit, with its addresses and
// lines, and the name of a .dwo file that has the tree of entries, which says what was inlined where. Linkers do not see
// those files; dwp joins them to one, PROGRAM.dwp, with an index by the unit's id (DWARF 5, 7.3.5). A unit and its
// skeleton have the same id, and a file without it is not used.
//
// Package debug/dwarf knows nothing of this, but reads a .dwo file if its sections begin where the bases that only the
// skeleton or the section's header knows would point: bases are 0 where an entry does not state them. That holds for
// DWARF 5. What GNU compilers made of DWARF 4 has forms that it does not know; there, lines are all there is.

import (
	"bytes"
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"path/filepath"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
)

// A splitUnit is the tree of a unit that is in another file.
type splitUnit struct {
	data *dwarf.Data
	root dwarf.Offset // the unit's entry
	line []byte       // .debug_line.dwo
	low  uint64       // address that ranges can be relative to
}

// Sections of a package file (DWARF 5, table 7.1).
const (
	dwInfo       = 1
	dwAbbrev     = 3
	dwLine       = 4
	dwStrOffsets = 6
	dwRnglists   = 8
)

var dwoSections = map[int]string{
	dwInfo: "info.dwo", dwAbbrev: "abbrev.dwo", dwLine: "line.dwo", dwStrOffsets: "str_offsets.dwo", dwRnglists: "rnglists.dwo",
}

var errNoSplit = errors.New("no unit of this id")

// split finds the tree of the unit with the skeleton e; nil: the unit is none, or its file is not there.
func (x *lineIndex) split(e *dwarf.Entry) *splitUnit {
	name, _ := e.Val(dwarf.AttrDwoName).(string)
	if e.Tag != dwarf.TagSkeletonUnit || name == "" || x.owner == nil || e.Offset < 8 || int(e.Offset) > len(x.info) {
		return nil
	}
	id := x.info[e.Offset-8 : e.Offset]
	base, _ := e.Val(dwarf.AttrAddrBase).(int64)
	low, _ := e.Val(dwarf.AttrLowpc).(uint64)
	path := x.owner.debugPath()
	dir, _ := e.Val(dwarf.AttrCompDir).(string)
	places := []string{filepath.Join(filepath.Dir(path), filepath.Base(name)), path + ".dwp"}
	if filepath.IsAbs(name) {
		places = append([]string{name}, places...)
	} else if dir != "" {
		places = append([]string{filepath.Join(dir, name)}, places...)
	}
	for _, p := range places {
		m, err := mapped.Open(p)
		if err != nil {
			continue
		}
		var u *splitUnit
		err = mapped.Guard(func() error {
			f, err := elfio.Parse(m.Data)
			if err != nil {
				return err
			}
			u, err = openSplit(f, id, x.addr, base)
			return err
		})
		if err != nil {
			m.Close()
			continue
		}
		x.owner.maps = append(x.owner.maps, m)
		u.low = low
		return u
	}
	return nil
}

// files are those that the unit's tree names by number: of its own line table, which has nothing else, and which the
// entry need not refer to. nil: they are the skeleton's (clang).
func (u *splitUnit) files() ([]*dwarf.LineFile, error) {
	if len(u.line) == 0 {
		return nil, nil
	}
	if err := checkLineHeader(u.line, 0, u.data); err != nil {
		return nil, err
	}
	e := &dwarf.Entry{Tag: dwarf.TagCompileUnit, Offset: u.root}
	e.Field = []dwarf.Field{{Attr: dwarf.AttrStmtList, Val: int64(0), Class: dwarf.ClassLinePtr}}
	lr, err := u.data.LineReader(e)
	if err != nil || lr == nil {
		return nil, err
	}
	return lr.Files(), nil
}

// openSplit reads the unit with the given id from a .dwo or .dwp file. addr is the program's .debug_addr, base where
// the unit's addresses begin in it.
func openSplit(f *elfio.File, id, addr []byte, base int64) (*splitUnit, error) {
	sec := map[int][]byte{}
	for k, name := range dwoSections {
		b, err := DebugSection(f, name)
		if err != nil {
			return nil, err
		}
		sec[k] = b
	}
	if index, err := DebugSection(f, "cu_index"); err != nil {
		return nil, err
	} else if index != nil {
		if err := contributions(f.Order(), index, id, sec); err != nil {
			return nil, err
		}
	}
	str, err := DebugSection(f, "str.dwo")
	if err != nil {
		return nil, err
	}
	units, err := unitOffsets(f, sec[dwInfo])
	if err != nil {
		return nil, err
	}
	for _, root := range units {
		if root < 8 || !bytes.Equal(sec[dwInfo][root-8:root], id) {
			continue
		}
		// Behind the headers: 8 and 12 bytes (7.26, 7.28); units of 64-bit DWARF are refused by what they then say.
		data, err := dwarf.New(sec[dwAbbrev], nil, nil, sec[dwInfo], sec[dwLine], nil, nil, str)
		if err != nil {
			return nil, err
		}
		for name, b := range map[string][]byte{
			".debug_addr": from(addr, base), ".debug_str_offsets": from(sec[dwStrOffsets], 8),
			".debug_rnglists": from(sec[dwRnglists], 12), ".debug_line_str": str,
		} {
			if err := data.AddSection(name, b); err != nil {
				return nil, err
			}
		}
		return &splitUnit{data: data, root: root, line: sec[dwLine]}, nil
	}
	return nil, errNoSplit
}

// from is what follows the first n bytes of b.
func from(b []byte, n int64) []byte {
	if n < 0 || n > int64(len(b)) {
		return nil
	}
	return b[n:]
}

// contributions cuts the sections of a package file down to those of the unit with the id.
func contributions(o binary.ByteOrder, index, id []byte, sec map[int][]byte) error {
	if len(index) < 16 || o.Uint16(index) != 5 {
		return errNoSplit
	}
	columns, units, slots := uint64(o.Uint32(index[4:])), uint64(o.Uint32(index[8:])), uint64(o.Uint32(index[12:]))
	hashes, rows := index[16:], uint64(16)+8*slots
	table := rows + 4*slots // a row of section ids, rows of offsets, rows of sizes
	if slots > uint64(len(index)) || columns > 16 || units > uint64(len(index)) ||
		table+4*columns*(1+2*units) > uint64(len(index)) {
		return errors.New("index of units: cut off")
	}
	for s := range slots {
		row := uint64(o.Uint32(index[rows+4*s:]))
		if !bytes.Equal(hashes[8*s:8*s+8], id) || row == 0 || row > units {
			continue
		}
		for c := range columns {
			k := int(o.Uint32(index[table+4*c:]))
			off := uint64(o.Uint32(index[table+4*columns*row+4*c:]))
			size := uint64(o.Uint32(index[table+4*columns*(units+row)+4*c:]))
			if b := sec[k]; off+size <= uint64(len(b)) {
				sec[k] = b[off : off+size]
			} else if dwoSections[k] != "" {
				return errors.New("index of units: outside the section")
			}
		}
		return nil
	}
	return errNoSplit
}
