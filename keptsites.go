//go:build linux

package fentry

// Sites of programs are kept, those of programs that a traced one executes among them.
//
// Finding the functions of a program takes 15 ms a megabyte, most of what a short run takes longer than it does
// untraced, and gives the same as long as neither the program nor the options nor fentry change. So what a run has found
// is kept in the cache of this user. The key has the file's identity, the checksum of its contents, which one processor
// computes at gigabytes a second, the names of its functions, which can come from other files, and fentry itself. An
// entry that cannot be read is made anew: without a cache everything is found each time.

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
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
	// sitesKind is the kind of the cache's entries that are sites.
	sitesKind = "sites"
	// sitesLimit is how many bytes they may take.
	sitesLimit = 64 << 20
	// keptFrom is from how many bytes on a program's sites are kept: those of smaller ones are found in a few ms.
	keptFrom = 256 << 10
)

// findSites finds the sites of the program, or takes those of an earlier run.
func (p *Program) findSites(f *elfio.File, o record.Options) ([]record.Site, error) {
	if !p.keeps || len(p.mapped.Data) < keptFrom {
		return record.Find(f, o)
	}
	key, ok := p.sitesKey(o)
	c, err := cache.Open()
	if err != nil || !ok {
		return record.Find(f, o)
	}
	defer c.Close()
	var none struct{}
	if kept, err := c.Get(sitesKind, key, &none); err == nil {
		if sites, err := readSites(f, kept); err == nil {
			p.Kept = true
			return sites, nil
		}
	}
	c.Drop(sitesKind, key) // if there is one, it is damaged
	sites, err := record.Find(f, o)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(sites, func(s record.Site) bool { return s.Moves != nil }) {
		return sites, nil // Go's, which are found more quickly than they are read
	}
	// If they cannot be kept they are found again the next time.
	kept, err := c.Put(sitesKind, key, "sites", none, func(w *os.File) error {
		if err := p.mapped.Changed(); err != nil {
			return err
		}
		_, err := w.Write(record.AppendSites(nil, sites))
		return err
	})
	if err == nil {
		kept.Close()
		_ = c.Trim(sitesKind, sitesLimit)
	}
	return sites, nil
}

// readSites reads an entry's file, nil for none, and closes it.
func readSites(f *elfio.File, kept *os.File) ([]record.Site, error) {
	if kept == nil {
		return nil, cache.ErrNone
	}
	defer kept.Close()
	b, err := io.ReadAll(io.LimitReader(kept, sitesLimit))
	if err != nil {
		return nil, err
	}
	return record.ReadSites(f, b)
}

// statOf is what identity needs of a mapped file.
func statOf(m *mapped.File) (st unix.Stat_t, ok bool) {
	at, ok := m.Info.Sys().(*syscall.Stat_t)
	if !ok {
		return st, false
	}
	return unix.Stat_t{Dev: at.Dev, Ino: at.Ino, Size: at.Size, Mtim: unix.Timespec(at.Mtim), Ctim: unix.Timespec(at.Ctim)}, true
}

// sitesKey is what the program's sites depend on.
func (p *Program) sitesKey(o record.Options) (string, bool) {
	file, ok := statOf(p.mapped)
	var self unix.Stat_t
	if !ok || unix.Stat("/proc/self/exe", &self) != nil {
		return "", false
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
	named := o.Named.Key()
	o.Symbols, o.Named = nil, nil
	return cache.Key("sites", identity(&self), identity(&file), fmt.Sprintf("%08x %08x %+v", crc32.Checksum(p.mapped.Data, castagnoli),
		functions, o), named), true
}
