//go:build linux

package fentry

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/record"
	"github.com/fentry-dev/fentry/symbol"
)

// A Program is a program's file, with what can be traced in it.
type Program struct {
	Path string
	// File is the image, nil if the file is not one that could be read. It refers to the mapped file.
	File *elfio.File
	// Sites are its functions, each with the place where it can be traced or the reason why it cannot. Programs that
	// fentry has patched have none: they trace themselves.
	Sites []record.Site
	// Syscalls are its system calls, if they were asked for.
	Syscalls []record.Syscall
	execs    []record.Syscall // the same, of a Go program also if it was asked where that executes others
	// Patched says that the program traces itself.
	Patched bool
	// Kept says that Sites are those of an earlier run, which have been kept.
	Kept bool
	// Untraced says why nothing in the program can be traced; "" if something can or the program traces itself.
	Untraced string

	keeps    bool              // Sites and Syscalls are kept
	contents string            // what all that is found depends on; "": not known yet
	prepare  func(file string) // [Options].Preparing, or nil
	prepared bool              // it was called

	lacks   *record.Options // what is still to be found; nil: nothing is
	swaps   *bool           // loadsSwaps; nil: it is not known yet
	symbols symbol.Options
	table   *symbol.Table // of the functions' names, nil unless there are Sites
	mapped  *mapped.File  // nil: cannot be read, or empty
}

// Open reads the program at path and finds its functions. A file in which nothing can be traced, such as a script, is
// not an error: Untraced says why. Names of a program that was stripped come from its separate debug file, if that is
// installed. Errors begin with the path.
//
// If compilers have prepared no function of the program for tracing, all are traced that can be without.
func Open(path string) (*Program, error) { return OpenWith(path, symbol.Options{}, record.Options{}) }

// OpenWith is [Open] with a choice of where names come from, and of what is found. names.Path is set if it is empty, and
// find.Symbols in any case.
func OpenWith(path string, names symbol.Options, find record.Options) (*Program, error) {
	return open(&Program{Path: path, symbols: names}, find)
}

// untracedUnread is why a program is not traced of which it is only permitted to execute it.
const untracedUnread = "its file cannot be read"

// unread tells such programs: nobody but root may look at their processes either.
func (p *Program) unread() bool { return p.Untraced == untracedUnread }

// open opens the program at p.Path.
func open(p *Program, find record.Options) (*Program, error) {
	m, err := mapped.Open(p.Path)
	switch {
	case errors.Is(err, fs.ErrPermission):
		// It can still be executed.
		p.Untraced = untracedUnread
		return p, nil
	case errors.Is(err, mapped.ErrEmpty):
		p.Untraced = "empty file"
		return p, nil
	case err != nil:
		return nil, err
	}
	p.mapped = m
	if err := mapped.Guard(func() error { return p.find(find) }); err != nil {
		p.Close()
		return nil, mapped.Named(p.Path, err)
	}
	return p, nil
}

// prepares says that something is looked for in the program that takes long.
func (p *Program) prepares() {
	if p.prepare != nil && !p.prepared {
		p.prepared = true
		p.prepare(p.Path)
	}
}

// Close releases the file: nothing that refers to the program may be used any more.
func (p *Program) Close() error {
	var err error
	if p.table != nil {
		err = p.table.Close()
	}
	return errors.Join(err, p.mapped.Close())
}

// find decides whether the program can be traced, and finds its sites.
func (p *Program) find(o record.Options) error {
	if !bytes.HasPrefix(p.mapped.Data, []byte(elf.ELFMAG)) {
		p.Untraced = "not an ELF program"
		return nil
	}
	f, err := elfio.Parse(p.mapped.Data)
	if err != nil {
		return err
	}
	p.File = f
	if !f.Is64() {
		p.Untraced = "a 32-bit program"
		return nil
	}
	if _, err := patch.Inspect(f); err == nil {
		p.Patched = true // it finds the session itself
		return nil
	} else if !errors.Is(err, patch.ErrNotPatched) {
		return err
	}
	if p.symbols.Path == "" {
		p.symbols.Path = p.Path
	}
	if p.table, err = symbol.NewWith(f, p.symbols); err != nil {
		return err
	}
	o.Symbols, o.Named = p.table, o.Named.In(p.Path)
	defer func() {
		if p.prepared {
			p.prepare("")
		}
	}()
	if p.Sites, err = p.findSites(o); err != nil {
		return err
	}
	if o.Syscalls {
		if p.Syscalls, err = p.findSyscalls(); err != nil {
			return err
		}
		if p.Syscalls == nil {
			p.Syscalls = []record.Syscall{} // none, but asked for
		}
	}
	if p.execs = p.Syscalls; o.Execs && !o.Syscalls && record.IsGo(f) {
		if p.execs, err = p.findSyscalls(); err != nil {
			return err
		}
	}
	if p.traceable() || o.Syscalls {
		return nil
	}
	if why := record.GoRefusal(f); why != "" {
		p.Untraced = why
		return nil
	}
	p.Untraced = p.noneTraceable()
	return nil
}

// noneTraceable says that none of the program's functions can be traced. Parts of functions are not counted.
func (p *Program) noneTraceable() string {
	n := 0
	for i := range p.Sites {
		if !p.Sites[i].Reason.Part() {
			n++
		}
	}
	switch n {
	case 0:
		return "it has no functions"
	case 1:
		return "its one function cannot be traced; fentry list -l says why"
	}
	return fmt.Sprintf("none of its %d functions can be traced; fentry list -l says why", n)
}

// tellingExecs is what a plan has the program tell a recorder by what it executes; nil: it does not. On x86-64 alone the
// runtime looks for that at system calls of Go's own code.
func (p *Program) tellingExecs() *[]record.Syscall {
	if len(p.execs) == 0 || p.File.Header.Machine != elf.EM_X86_64 {
		return nil
	}
	return &p.execs
}

// traceable tells whether any function could be traced, whatever was asked for.
func (p *Program) traceable() bool {
	for i := range p.Sites {
		if p.Sites[i].Traceable() {
			return true
		}
	}
	return false
}

// Plan returns a plan for tracing the program, for a patched copy that traces itself if o.Target is [patch.File]. The
// plan refers to the program. Errors are those of [patch.New].
func (p *Program) Plan(o patch.Options) (*patch.Plan, error) {
	if err := p.whole(); err != nil {
		return nil, mapped.Named(p.Path, err)
	}
	switch {
	case p.Patched:
		return nil, fmt.Errorf("%s: already patched", p.Path)
	case p.Untraced != "":
		return nil, fmt.Errorf("%s: %w: %s", p.Path, patch.ErrNoSites, p.Untraced)
	}
	if o.Path == "" {
		o.Path = p.Path
	}
	if p.Syscalls != nil {
		o.Syscalls = &p.Syscalls
	}
	var plan *patch.Plan
	err := mapped.Guard(func() (err error) {
		plan, err = patch.New(p.File, p.Sites, o)
		return err
	})
	if err != nil {
		return nil, mapped.Named(p.Path, err)
	}
	return plan, nil
}

// Guard calls do, and returns its error. Programs are mapped, not read into memory, and anybody who may write to their
// files can truncate them meanwhile: what touches a [Program], a plan of it or names from them panics or kills the
// process then, unless it is done by Guard, which returns an error that names the file. The functions of this package
// need no Guard around them. What do was changing is left half done.
func Guard(do func() error) error { return mapped.Guard(do) }

// loads reports whether a dynamic loader loads libraries of the program.
func (p *Program) loads() bool { return p.loader() != "" }

// loader is the path of the program's dynamic loader; "": it has none, or cannot be read.
func (p *Program) loader() (file string) {
	_ = mapped.Guard(func() error {
		if p.File != nil {
			file = p.interpreter()
		}
		return nil
	})
	return file
}

// interpreter is the path of the program's dynamic loader, "" if it has none.
func (p *Program) interpreter() string {
	const longest = 4096 // PATH_MAX
	for _, pr := range p.File.Progs {
		if pr.Type == elf.PT_INTERP && pr.Filesz <= longest {
			b, err := p.File.Bytes(pr.Vaddr, int(pr.Filesz))
			if err != nil {
				return ""
			}
			b, _, _ = bytes.Cut(b, []byte{0})
			return strings.Clone(string(b))
		}
	}
	return ""
}
