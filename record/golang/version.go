package golang

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
)

// Versions.
//
// What is read of a program's runtime, and what is added to it, are structures of the runtime's own (runtime2.go,
// symtab.go), which change. A stripped program does not describe them, so there is a table of the versions that were
// tried. Programs of others are traced if their debug information, which go build adds if it is not told otherwise,
// describes all that is needed, and in the form that is known: then fields may be elsewhere, but are what they were. The
// trace says so (fentry info), because what such a runtime does may have changed besides.
//
// Where that is not there either, the little that recording cannot do without is derived from the machine code of the
// runtime's own functions (derive.go). Then moved code cannot be made known to the runtime, and less of it moves.

// A Version is what depends on the version of Go that has linked an image: offsets in structures of its runtime.
type Version struct {
	Name   string
	GoID   uint32 // of runtime.g
	Parent uint32 // of it, the number of the goroutine's parent; two words behind it are the same in all versions
	CurG   uint32 // of runtime.m: the goroutine that it runs
	TLS    uint32 // of it, words for thread-local memory, which the runtime does not use on AArch64
	Size   uint32 // of runtime.moduledata
	Rodata uint32 // in it, followed by where the functions' data is
	Bad    uint32 // in it
	Next   uint32 // in it
	Header bool   // pcHeader.textStart is checked

	// Source is where these are from. Of [Derived] ones there are only GoID, and Size as far as it is read.
	Source Source

	minor   int
	reasons []string // for which goroutines wait, by number, as the program says; nil: those of the table
}

// Source is where what is known of a version's runtime is from.
type Source string

// The sources.
const (
	Tried     Source = ""          // a table of the versions that were tried
	Described Source = "described" // the program's debug information
	Derived   Source = "derived"   // the code of its runtime, which cannot be told of moved code
)

// Module reports whether the runtime can be told of moved code.
func (v *Version) Module() bool { return v.Source != Derived }

// Label is the version's name, with where it is known from behind it, if it was not tried.
func (v *Version) Label() string {
	if v.Source != Tried {
		return v.Name + " " + string(v.Source)
	}
	return v.Name
}

// Named returns what [Version.Label] has made a label of.
func Named(label string) (version string, from Source) {
	for _, from := range []Source{Described, Derived} {
		if name, ok := strings.CutSuffix(label, " "+string(from)); ok {
			return name, from
		}
	}
	return label, Tried
}

// versions are those that were tried, by their minor number.
var versions = map[int]Version{
	21: {GoID: 0x98, Parent: 0x110, CurG: 0xc0, TLS: 0x88, Rodata: 0x138, Size: 0x250, Bad: 0x240, Next: 0x248, Header: true},
	22: {GoID: 0x98, Parent: 0x110, CurG: 0xc0, TLS: 0x88, Rodata: 0x138, Size: 0x250, Bad: 0x240, Next: 0x248, Header: true},
	23: {GoID: 0xa0, Parent: 0x118, CurG: 0xc0, TLS: 0x88, Rodata: 0x138, Size: 0x248, Bad: 0x211, Next: 0x240, Header: true},
	24: {GoID: 0xa0, Parent: 0x118, CurG: 0xc0, TLS: 0x88, Rodata: 0x138, Size: 0x248, Bad: 0x211, Next: 0x240, Header: true},
	25: {GoID: 0x98, Parent: 0x110, CurG: 0xb8, TLS: 0x80, Rodata: 0x138, Size: 0x248, Bad: 0x211, Next: 0x240, Header: true},
	26: {GoID: 0x98, Parent: 0x118, CurG: 0xb8, TLS: 0x80, Rodata: 0x138, Size: 0x250, Bad: 0x219, Next: 0x248},
	27: {GoID: 0x98, Parent: 0x118, CurG: 0xb8, TLS: 0x80, Rodata: 0x150, Size: 0x238, Bad: 0x201, Next: 0x230},
}

// Offsets in moduledata that are the same in all versions.
const (
	mdFuncNames = 0x08
	mdCUTab     = 0x20
	mdFileTab   = 0x38
	mdPctab     = 0x50
	mdFTab      = 0x80
	mdMinPC     = 0xa0
	mdMaxPC     = 0xa8
	mdText      = 0xb0
	mdEText     = 0xb8
	mdKnown     = 0xc0 // what is behind differs
)

// tried returns the version with a name like go1.26.8. minor is its number, 0: it is no version of Go's.
func tried(name string) (v Version, minor int, ok bool) {
	_, number, found := strings.Cut(name, "go1.")
	if n, err := fmt.Sscanf(number, "%d", &minor); !found || n != 1 || err != nil {
		return Version{}, 0, false
	}
	v, ok = versions[minor]
	v.Name, v.minor = name, minor
	return v, minor, ok && !strings.Contains(name, "devel")
}

// oldest is the minor number of the first version whose programs can be traced: before, functions began otherwise.
const oldest = 21

// versionOf returns the version with a name like go1.26.8, or devel go1.28-0123456, that has linked an image.
func versionOf(f *elfio.File, name string) (Version, error) {
	v, minor, ok := tried(name)
	switch {
	case minor == 0:
		return Version{}, refuse("linked by %q, which is no version of Go", name)
	case ok:
		return v, nil
	case minor < oldest:
		return Version{}, refuse("linked by %s: programs of go1.21 and later are traced", name)
	}
	v, err := describe(f)
	if err == nil {
		v.Source, v.reasons = Described, waitReasonsOf(f)
	} else {
		v = Version{Source: Derived, Size: mdKnown}
	}
	v.Name, v.minor = name, minor
	return v, nil
}

// unlike refuses an image of a version that was not tried.
func (v *Version) unlike(why error) error {
	return refuse("linked by %s: of the runtimes that were tried, go1.21 to go1.27, it is none, and not like them (%v)", v.Name, why)
}

// layouts are the structures that are needed, and their fields: where they must be, or anywhere.
var layouts = map[string]map[string]int64{
	"runtime.stack": {"hi": 8},
	"runtime.gobuf": {"sp": 0},
	"runtime.g": {"stack": 0, "m": 0x30, "sched": 0x38, "stackguard0": 0x10, "goid": anywhere, "parentGoid": anywhere,
		"gopc": anywhere, "startpc": anywhere},
	"runtime.m": {"g0": 0, "curg": anywhere, "tls": anywhere},
	"runtime._func": {"deferreturn": RecDeferReturn, "pcsp": RecPCSP, "pcfile": RecPCFile, "pcln": RecPCLine,
		"npcdata": RecNPCData, "flag": recFlag, "nfuncdata": RecNFuncData},
	"runtime.moduledata": {"pcHeader": 0, "funcnametab": mdFuncNames, "cutab": mdCUTab, "filetab": mdFileTab,
		"pctab": mdPctab, "pclntable": 0x68, "ftab": mdFTab, "findfunctab": 0x98, "minpc": mdMinPC, "maxpc": mdMaxPC, "text": mdText,
		"etext": mdEText, "rodata": anywhere, "gofunc": anywhere, "bad": anywhere, "next": anywhere},
	"runtime.pcHeader": {"magic": 0, "minLC": 6, "ptrSize": 7, "nfunc": 8, "funcnameOffset": 0x20, "cuOffset": 0x28,
		"filetabOffset": 0x30, "pctabOffset": 0x38, "pclnOffset": 0x40},
}

const anywhere = -1

// A layout is where a structure's fields are.
type layout struct {
	size   int64
	fields map[string]int64
}

// describe returns the version that an image's debug information describes.
func describe(f *elfio.File) (v Version, err error) {
	defer func() {
		if p := recover(); p != nil { // debug/dwarf does not promise to have none
			err = fmt.Errorf("debug information: %v", p)
		}
	}()
	found, err := readLayouts(f)
	if err != nil {
		return v, err
	}
	return versionIn(found)
}

// versionIn returns the version whose runtime has some structures. Nothing in them is trusted: their offsets are read and
// written at.
func versionIn(found map[string]layout) (v Version, err error) {
	for name, fields := range layouts {
		l, ok := found[name]
		if !ok {
			return v, fmt.Errorf("no %s", name)
		}
		for field, want := range fields {
			at, ok := l.fields[field]
			if !ok || want != anywhere && at != want || at < 0 || l.size < 0 || at > l.size-width(name, field) {
				return v, fmt.Errorf("%s.%s is not where it was", name, field)
			}
		}
	}
	g, m := found["runtime.g"].fields, found["runtime.m"].fields
	md, header := found["runtime.moduledata"], found["runtime.pcHeader"]
	const most = 1 << 12 // of a structure, in bytes
	if md.fields["gofunc"] != md.fields["rodata"]+8 || g["gopc"] != g["parentGoid"]+8 || g["startpc"] != g["parentGoid"]+24 ||
		min(md.fields["rodata"], md.fields["bad"], md.fields["next"]) < mdKnown || header.size != 0x48 ||
		max(md.size, g["goid"], g["parentGoid"], m["curg"], m["tls"]) > most {
		return v, errors.New("its structures have another form")
	}
	_, checked := header.fields["textStart"]
	return Version{
		GoID: uint32(g["goid"]), Parent: uint32(g["parentGoid"]), CurG: uint32(m["curg"]), TLS: uint32(m["tls"]),
		Size: uint32(md.size), Rodata: uint32(md.fields["rodata"]), Bad: uint32(md.fields["bad"]), Next: uint32(md.fields["next"]),
		Header: checked,
	}, nil
}

// width is how many bytes a field has, at least.
func width(structure, field string) int64 {
	switch {
	case field == "bad":
		return 1
	case structure == "runtime.moduledata", structure == "runtime.g", structure == "runtime.m":
		return 8
	}
	return 1
}

// readLayouts reads the structures that are needed from the debug information of the runtime's compilation unit.
func readLayouts(f *elfio.File) (map[string]layout, error) {
	image, err := elf.NewFile(bytes.NewReader(f.Raw()))
	if err != nil {
		return nil, err
	}
	if err := checkSizes(image, uint64(len(f.Raw()))); err != nil {
		return nil, err
	}
	d, err := image.DWARF()
	if err != nil {
		return nil, err
	}
	found := map[string]layout{}
	r := d.Reader()
	for len(found) < len(layouts) {
		e, err := r.Next()
		if e == nil || err != nil {
			return found, err
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		switch {
		case e.Tag == dwarf.TagCompileUnit:
			if name != "runtime" {
				r.SkipChildren()
			}
			continue
		case e.Tag == dwarf.TagStructType && layouts[name] != nil:
			t, err := d.Type(e.Offset)
			if s, ok := t.(*dwarf.StructType); ok && err == nil {
				l := layout{size: s.ByteSize, fields: map[string]int64{}}
				for _, field := range s.Field {
					l.fields[field.Name] = field.ByteOffset
				}
				found[name] = l
			}
		}
		r.SkipChildren()
	}
	return found, nil
}

// checkSizes returns an error if an image's debug information is much larger than the image, of a size in bytes, can have
// compressed.
func checkSizes(image *elf.File, size uint64) error {
	const (
		mostExpanded = 64 // bytes that one of a compressed section becomes
		mostAll      = 1 << 30
	)
	left := uint64(mostAll)
	for _, s := range image.Sections {
		switch {
		case strings.HasPrefix(s.Name, ".zdebug_"): // of old versions, which are not read: its size is inside
			return fmt.Errorf("%s: compressed in an old way", s.Name)
		case !strings.HasPrefix(s.Name, ".debug_"):
		case s.Size > mostExpanded*min(s.FileSize, size)+1<<12:
			return fmt.Errorf("%s: %d bytes in %d", s.Name, s.Size, s.FileSize)
		case s.Size > left:
			return fmt.Errorf("%s: more than %d bytes with those before it", s.Name, uint64(mostAll))
		default:
			left -= s.Size
		}
	}
	return nil
}

// waitReasonsOf reads the runtime's own names of what goroutines wait for. Nil: they are not found.
func waitReasonsOf(f *elfio.File) []string {
	symbols, err := f.Symbols()
	if err != nil {
		return nil
	}
	for i := range symbols {
		s := &symbols[i]
		if s.Name != "runtime.waitReasonStrings" || s.Size > mostReasons*stringSize {
			continue
		}
		var names []string
		for at := s.Value; at+stringSize <= s.Value+s.Size; at += stringSize {
			name := stringAt(f, at)
			switch {
			case len(names) == 0 && name == "":
				name = waitReasons[0].name
			case name == "": // in a position-independent image, where it is says a relocation
				return nil
			}
			names = append(names, name)
		}
		return names
	}
	return nil
}

const (
	mostReasons = 256
	stringSize  = 16 // of a string's header
	longest     = 128
)

// stringAt reads a string whose header is at an address; "": it cannot be read.
func stringAt(f *elfio.File, at uint64) string {
	header, err := f.Bytes(at, stringSize)
	if err != nil {
		return ""
	}
	n := le.Uint64(header[8:])
	text, err := f.Bytes(le.Uint64(header), int(min(n, longest)))
	if err != nil || n > longest {
		return ""
	}
	return string(text)
}
