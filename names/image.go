package names

// Which file is an image's. A path alone proves nothing: programs are rebuilt, patched again and replaced, and a trace
// read on another machine finds another program under the same name. Names from the wrong program are worse than none,
// so a file has to show that it is the one: by the image id that patching left in it, or that follows from its headers
// if it was linked with the tracer, and where only lines are wanted, also by the build-id.

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/internal/sitetable"
	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/symbol"
)

// An Image identifies a program image by what a trace says about it.
type Image struct {
	ID      uint64   // image id
	BuildID string   // hex digits, "" if unknown
	Entry   uint64   // e_entry of the file, 0 if unknown
	Linked  bool     // linked with the tracer: ids are distances
	Paths   []string // paths to try for its file, in order; "" is skipped
}

// Errors of a file that is not the image's.
var (
	errPatchedAgain = errors.New("not the program that was traced: it has been patched again since")
	errBuiltAgain   = errors.New("not the program that was traced: it has been built again since")
	errOther        = errors.New("not the program that was traced: its build-id is another")
	errNoPath       = errors.New("the trace does not name the program's file")
)

// Find reads the functions of an image from its file. If no file is the image, the error begins with the path of the
// first one that exists and says what is wrong with it.
func Find(im Image) (*Table, error) {
	var t *Table
	err := im.eachFile(func(m *mapped.File, f *elfio.File) (err error) {
		if t, err = from(f, im, m.Path); err == nil {
			m.Close()
		}
		return err
	})
	return t, err
}

// From reads the functions of an image from a parsed file, which must be the image: one that fentry has patched, or
// one linked with the tracer. The table does not refer to the file's memory.
func From(f *elfio.File, im Image) (*Table, error) { return from(f, im, "") }

// from is From for a file at path; with a path, separate debug files are looked for.
func from(f *elfio.File, im Image, path string) (*Table, error) {
	o := symbol.Options{Path: path}
	if path == "" {
		o.DebugDirs = []string{}
	}
	if im.Linked {
		return fromLinked(f, im, o)
	}
	return fromPatched(f, im, o)
}

// eachFile maps and parses the files the image can be, until use accepts one, to which that mapping belongs then.
func (im *Image) eachFile(use func(*mapped.File, *elfio.File) error) error {
	why := errNoPath
	for _, path := range im.Paths {
		if path == "" {
			continue
		}
		err := func() error {
			m, err := mapped.Open(path)
			if err != nil {
				return err
			}
			err = mapped.Guard(func() error {
				f, err := elfio.Parse(m.Data)
				if err != nil {
					return err
				}
				return use(m, f)
			})
			if err != nil {
				m.Close()
				return mapped.Named(path, err)
			}
			return nil
		}()
		if err == nil {
			return nil
		}
		if why == errNoPath || errors.Is(why, fs.ErrNotExist) {
			why = err
		}
	}
	return why
}

// fromPatched reads the table of sites that patching left in the file.
func fromPatched(f *elfio.File, im Image, o symbol.Options) (*Table, error) {
	if err := isPatched(f, im); err != nil {
		return nil, err
	}
	tab, err := symbol.NewWith(f, o)
	if err != nil {
		return nil, err
	}
	defer tab.Close()
	return FromNamed(f, im, tab)
}

// isPatched returns an error unless patching has left the image's id in the file.
func isPatched(f *elfio.File, im Image) error {
	info, _, err := sitetable.Read(f)
	switch {
	case errors.Is(err, sitetable.ErrNone):
		return errors.New("not patched by fentry")
	case err != nil:
		return err
	case info.Image != im.ID:
		return errPatchedAgain
	}
	return nil
}

// FromNamed is [From] for a file that fentry has patched, with names from tab: that of the same image before it was
// patched, which leads to a debug file as the patched one may not. The table does not refer to tab.
func FromNamed(f *elfio.File, im Image, tab *symbol.Table) (*Table, error) {
	if err := isPatched(f, im); err != nil {
		return nil, err
	}
	info, rows, err := sitetable.Read(f)
	if err != nil {
		return nil, err
	}
	imports, err := symbol.Imports(f)
	if err != nil {
		return nil, err
	}
	goNames, _ := golang.ReadNames(f) // it may not be Go's, or of a version whose tables are not known
	t := New(f)
	if t.Captures, err = sitetable.ReadNotes(f, info.Sites); err != nil {
		return nil, err
	}
	if goNames != nil {
		t.Module, t.Go = strings.Clone(goNames.Main), strings.Clone(goNames.Version.Label())
	}
	t.Image, t.BuildID, t.Funcs = info.Image, bytes.Clone(info.BuildID), make([]Func, rows.Len())
	for i := range t.Funcs {
		r := rows.At(i)
		t.Funcs[i] = Func{ID: uint32(i + 1), Addr: r.Func, Site: r.Site, Kind: "patched"}
		if fn := goNames.Func(r.Func); fn != nil {
			t.goName(&t.Funcs[i], fn)
		} else if fn, ok := tab.Lookup(r.Func); ok && fn.Addr == r.Func {
			t.Funcs[i].Name, t.Funcs[i].Size = strings.Clone(fn.Name), fn.Size
			t.aliases(tab, &fn)
		} else if k, ok := slices.BinarySearchFunc(imports, r.Func, symbol.Import.Compare); ok {
			t.Funcs[i].Name = imports[k].CallName()
		}
	}
	return t, nil
}

// fromLinked reads the functions of a program that was linked with the tracer.
func fromLinked(f *elfio.File, im Image, o symbol.Options) (*Table, error) {
	if !f.Is64() || linkedID(f) != im.ID {
		return nil, errBuiltAgain
	}
	tab, err := symbol.NewWith(f, o)
	if err != nil {
		return nil, err
	}
	defer tab.Close()
	t := New(f)
	t.Image, t.Linked = im.ID, true
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Off == 0 {
			t.Base = p.Vaddr
		}
	}
	for _, fn := range tab.Funcs() {
		t.Funcs = append(t.Funcs, Func{Name: strings.Clone(fn.Name), Addr: fn.Addr, Size: fn.Size, Kind: "linked"})
		t.aliases(tab, &fn)
	}
	return t, nil
}

// goName names a function of a Go program, as a recorder does.
func (t *Table) goName(f *Func, fn *golang.Func) {
	f.Name, f.Size = golang.PrintedName(fn.Name), fn.Next-fn.Entry
	if golang.Silent(fn.Name) {
		f.Kind = KindSilent
	}
	if f.Name != fn.Name {
		t.Alias(f.Addr, fn.Name)
	}
}

// aliases copies the other names of a function.
func (t *Table) aliases(tab *symbol.Table, fn *symbol.Func) {
	if !fn.Aliased {
		return
	}
	for _, n := range tab.Aliases(fn.Addr) {
		t.Alias(fn.Addr, strings.Clone(n))
	}
}

// linkedID is the image id of a program that was linked with the tracer: FNV-1a of what does not change when it is
// stripped. The runtime computes the same (stub/src/classic.c).
func linkedID(f *elfio.File) uint64 {
	h := fnv.New64a()
	raw, at, n := f.Raw(), f.Header.Phoff, uint64(len(f.Progs))*56
	h.Write(raw[16:32]) // type, machine, version, entry point
	if at <= uint64(len(raw)) && n <= uint64(len(raw))-at {
		h.Write(raw[at : at+n])
	}
	h.Write(f.BuildID())
	return h.Sum64()
}

// check reports whether a file is the image, or what the image was made from: both have the same functions at the same
// addresses.
func (im *Image) check(f *elfio.File) error {
	id, patched := f.BuildID(), false
	if info, _, err := sitetable.Read(f); err == nil {
		if info.Image == im.ID {
			return nil
		}
		id, patched = info.BuildID, true
	}
	want, err := hex.DecodeString(im.BuildID)
	switch {
	case err == nil && len(want) > 0 && len(id) > 0:
		if !bytes.Equal(id, want) {
			return errOther
		}
	case im.Linked:
		if !f.Is64() || linkedID(f) != im.ID {
			return errBuiltAgain
		}
	case im.Entry != 0 && !patched && f.Header.Entry != im.Entry:
		return errBuiltAgain
	}
	return nil
}

// GoFunctions returns all functions of a Go program, by address, with the names that Go prints: from its own file, which
// need not be patched.
func GoFunctions(im Image) (funcs []Func, err error) {
	err = im.eachFile(func(m *mapped.File, f *elfio.File) error {
		if err := im.check(f); err != nil {
			return err
		}
		g, err := golang.ReadNames(f)
		if err != nil {
			return err
		}
		funcs = make([]Func, len(g.Funcs))
		for i := range g.Funcs {
			fn := &g.Funcs[i]
			funcs[i] = Func{Addr: fn.Entry, Size: fn.Next - fn.Entry, Name: strings.Clone(golang.PrintedName(fn.Name))}
		}
		return m.Close()
	})
	return funcs, err
}
