//go:build linux

package fentry

// Sites and system calls of programs are kept, those of programs that a traced one executes among them.
//
// Finding the functions of a program takes 15 ms a megabyte, and its system calls as long, most of what a short run takes
// longer than it does untraced, and gives the same as long as neither the program nor the options nor fentry change. So what
// a run has found is kept in the cache of this user. The key has the file's identity, the checksum of its contents, which
// one processor computes at gigabytes a second, the names of its functions, which can come from other files, and fentry
// itself. The patterns that choose functions are in it only if compilers have prepared functions of the program: then others are
// sites as well that a pattern names. An entry that cannot be read is made anew: without a cache everything is found each time.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/cache"
	"github.com/fentry-dev/fentry/internal/mapped"
	"github.com/fentry-dev/fentry/record"
)

const (
	// sitesKind is the kind of the cache's entries that are sites, and syscallsKind of those that are system calls.
	sitesKind, syscallsKind = "sites", "syscalls"
	// sitesLimit and syscallsLimit are how many bytes they may take.
	sitesLimit, syscallsLimit = 64 << 20, 4 << 20
	// keptFrom is from how many bytes on what is found in a program is kept: in smaller ones it is found in a few ms.
	keptFrom = 128 << 10
)

// findSites finds the sites of the program, or takes those of an earlier run.
func (p *Program) findSites(o record.Options) (sites []record.Site, err error) {
	key, prepared := o.FoundKey()
	w := &finding[record.Site]{
		kind: sitesKind, limit: sitesLimit, key: key,
		find: func() ([]record.Site, error) { return record.Find(p.File, o) },
		read: record.ReadSites,
		bytes: func(sites []record.Site) []byte {
			if slices.ContainsFunc(sites, func(s record.Site) bool { return s.Kind == record.KindGo }) {
				return nil // Go's, which are found more quickly than they are read
			}
			return record.AppendSites(nil, sites)
		},
	}
	if prepared != "" {
		w.special, w.specialKey = record.Prepared, prepared
	}
	sites, p.Kept, err = w.in(p)
	return sites, err
}

// findSyscalls finds the system calls of the program, or takes those of an earlier run.
func (p *Program) findSyscalls() (calls []record.Syscall, err error) {
	w := &finding[record.Syscall]{
		kind: syscallsKind, limit: syscallsLimit,
		find:  func() ([]record.Syscall, error) { return record.Syscalls(p.File, p.table) },
		read:  record.ReadSyscalls,
		bytes: func(calls []record.Syscall) []byte { return record.AppendSyscalls(nil, calls) },
	}
	calls, _, err = w.in(p)
	return calls, err
}

// A finding is something that is found in programs.
type finding[T any] struct {
	kind  string // of the cache's entries
	limit int64  // how many bytes they may take
	key   string // what it depends on besides the program
	find  func() ([]T, error)
	read  func(*elfio.File, []byte) ([]T, error)
	bytes func([]T) []byte // what is kept; nil: nothing is

	special    func([]T) bool // whether it depends on specialKey, too; nil: it does not
	specialKey string
}

// in finds it in a program, or takes what an earlier run has found there.
func (w *finding[T]) in(p *Program) (found []T, kept bool, err error) {
	if len(p.mapped.Data) < keptFrom {
		found, err = w.find()
		return found, false, err
	}
	c, key := p.openCache(w.key)
	defer c.Close()
	found, kept = w.get(p, c, key)
	special := cache.Key(key, w.specialKey)
	if w.special != nil && (!kept || w.special(found)) {
		found, kept = w.get(p, c, special)
	}
	if kept {
		return found, true, nil
	}
	p.prepares()
	if found, err = w.find(); err != nil || c == nil {
		return found, false, err
	}
	if w.special != nil && w.special(found) {
		key = special
	}
	b := w.bytes(found)
	if b == nil {
		return found, false, nil
	}
	// If it cannot be kept it is found again the next time.
	var none struct{}
	f, err := c.Put(w.kind, key, w.kind, none, func(to *os.File) error {
		if err := p.mapped.Changed(); err != nil {
			return err
		}
		_, err := to.Write(b)
		return err
	})
	if err == nil {
		f.Close()
		_ = c.Trim(w.kind, w.limit)
	}
	return found, false, nil
}

// get takes what is kept.
func (w *finding[T]) get(p *Program, c *cache.Cache, key string) (found []T, kept bool) {
	var none struct{}
	if f, err := c.Get(w.kind, key, &none); err == nil {
		if found, err = w.readFile(p.File, f); err == nil {
			return found, true
		}
	}
	c.Drop(w.kind, key) // if there is one, it is damaged
	return nil, false
}

// readFile reads an entry's file, nil for none, and closes it.
func (w *finding[T]) readFile(of *elfio.File, f *os.File) ([]T, error) {
	if f == nil {
		return nil, cache.ErrNone
	}
	defer f.Close()
	b, err := readKept(f, w.limit)
	if err != nil {
		return nil, err
	}
	return w.read(of, b)
}

// openCache opens the cache for something that depends on the program and on more; nil: nothing is kept.
func (p *Program) openCache(more string) (c *cache.Cache, key string) {
	if !p.keeps {
		return nil, ""
	}
	if p.contents == "" && !p.identify() {
		return nil, ""
	}
	c, err := cache.Open()
	if err != nil {
		return nil, ""
	}
	return c, cache.Key("found", p.contents, more)
}

// statOf is what identity needs of a mapped file.
func statOf(m *mapped.File) (st unix.Stat_t, ok bool) {
	at, ok := m.Info.Sys().(*syscall.Stat_t)
	if !ok {
		return st, false
	}
	return unix.Stat_t{Dev: at.Dev, Ino: at.Ino, Size: at.Size, Mtim: unix.Timespec(at.Mtim), Ctim: unix.Timespec(at.Ctim)}, true
}

// identify notes what all depends on that is found in the program.
func (p *Program) identify() bool {
	file, ok := statOf(p.mapped)
	var self unix.Stat_t
	if !ok || unix.Stat("/proc/self/exe", &self) != nil {
		return false
	}
	functions := uint32(0)
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	var text []byte
	for i := range p.table.Funcs() {
		fn := &p.table.Funcs()[i]
		text = strconv.AppendBool(strconv.AppendBool(text[:0], fn.Ifunc), fn.Part)
		text = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(text, fn.Addr), fn.Size)
		text = append(append(append(text, fn.Source...), 0), fn.Name...)
		for _, a := range p.table.Aliases(fn.Addr) {
			text = append(append(text, 0), a...)
		}
		functions = crc32.Update(functions, castagnoli, text)
	}
	p.contents = fmt.Sprintf("%s %s %08x %08x", identity(&self), identity(&file), crc32.Checksum(p.mapped.Data, castagnoli), functions)
	return true
}
