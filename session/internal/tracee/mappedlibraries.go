//go:build linux

package tracee

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Shared libraries that a process has loaded.
//
// What is added to a library must be as close to it as branches reach, but behind it there are other libraries. So it
// gets room in the next gap above it that is large: kernels place new mappings below the others, not there, and above the
// last library there are at least 128 MiB before the stack. How much it takes is known only once the library is planned
// for its room, so an estimate has to do. It is above what nearly all libraries take, which is .25 MB and a fifth of their
// size: all libraries of large programs, hundreds, are to have room. The others are planned once more. That nobody has the
// room is looked at again when it is mapped.

// Library is one of them.
type Library struct {
	Path   string        // in the process
	At     uint64        // where there is room for what is added, as an address of the library
	Memory *patch.Memory // set by who plans; nil: it is left alone

	pid    int
	more   uint64       // what is added takes so much; 0: that is not known
	lo, hi uint64       // where it is mapped
	first  uint64       // the end of the mapping at lo
	key    string       // of that
	parts  []patch.Part // its segments; nil: they are not known, as it is not planned here
}

const (
	roomApart = 16 << 20 // from what else is below and above the room
	roomMore  = 1 << 20  // beside what depends on the size
	roomReach = 7 << 28  // from the library's beginning: most of what branches reach
)

// libraries are those among mappings, but for the program with an entry point.
func libraries(ms []mapping, entry uint64) (all []*Library) {
	for i := 0; i < len(ms); i++ {
		offset, file, _ := strings.Cut(ms[i].key, " ")
		if !path.IsAbs(ms[i].path) || strings.Trim(offset, "0") != "" {
			continue
		}
		l := &Library{Path: ms[i].path, lo: ms[i].lo, hi: ms[i].hi, first: ms[i].hi, key: ms[i].key}
		code := false
		for ; i < len(ms) && strings.HasSuffix(ms[i].key, " "+file); i++ {
			l.hi, code = ms[i].hi, code || strings.Contains(ms[i].perms, "x")
		}
		i--
		if code && (entry < l.lo || l.hi <= entry) {
			all = append(all, l)
		}
	}
	return all
}

// makeRoom finds room for what is added to libraries, beside what is taken.
func makeRoom(ms, taken []mapping, all []*Library) {
	for _, l := range all {
		l.At = 0
		if at := l.room(ms, taken); at != 0 {
			taken = append(taken, mapping{lo: at, hi: at + l.needs()})
			l.At = at - l.lo
		}
	}
}

// planIn makes plans for libraries, in room that is made for them.
func planIn(ms []mapping, all []*Library, plan func([]*Library)) {
	makeRoom(ms, nil, all)
	plan(all)
	var taken []mapping
	var large []*Library
	for _, l := range all {
		switch takes := l.takes(); {
		case takes > l.needs():
			l.more, l.Memory = takes, nil
			large = append(large, l)
		case takes > 0:
			taken = append(taken, mapping{lo: l.lo + l.At, hi: l.lo + l.At + l.needs()})
		}
	}
	if len(large) > 0 {
		makeRoom(ms, taken, large)
		plan(large)
	}
}

// needs is how much room what is added to a library is to have.
func (l *Library) needs() uint64 { return roomMore + max(l.more, l.hi-l.lo) }

// takes is how much a library's plan takes, with its journal; 0: it has none.
func (l *Library) takes() uint64 {
	if l.Memory == nil {
		return 0
	}
	n := pageUp(l.Memory.RXAddr + l.Memory.Size() - l.At)
	for _, e := range l.Memory.Edits {
		n += 2*binary.MaxVarintLen64 + uint64(len(e.New))
	}
	return n
}

// merged are all of these mappings, by address.
func merged(ms, taken []mapping) []mapping {
	all := slices.Concat(ms, taken)
	slices.SortFunc(all, func(a, b mapping) int { return cmp.Compare(a.lo, b.lo) })
	return all
}

// room finds room for a library; 0: there is none.
func (l *Library) room(ms, taken []mapping) uint64 {
	// Rooms adjoin each other: what is between them would be lost to the many libraries of large programs.
	all := merged(ms, taken)
	ends := make(map[uint64]bool, len(taken))
	for _, m := range taken {
		ends[m.hi] = true
	}
	end := l.hi
	for _, m := range all {
		if m.hi <= end {
			continue
		}
		at := pageUp(end)
		if !ends[end] {
			at += roomApart
		}
		if at+l.needs()-l.lo > roomReach {
			return 0
		} else if at+l.needs()+roomApart <= m.lo {
			return at
		}
		end = m.hi
	}
	return 0
}

// Files are paths of the library's file. The first is the file that is mapped, and can be opened by root alone.
func (l *Library) Files() []string {
	return []string{
		fmt.Sprintf("/proc/%d/map_files/%x-%x", l.pid, l.lo, l.first), procfs.Dir(l.pid) + "/root" + l.Path,
	}
}

// Key tells a library from all others, in all processes.
func (l *Library) Key() string { return l.key + " " + l.Path }

// in tells whether the library is still loaded where it was, or again. A loader first maps all of a file in a row, and then what is
// elsewhere over that: until it has, the library is not there. That its code is mapped as such is not asked: the program may be
// changing it.
func (l *Library) in(ms []mapping) bool {
	return slices.ContainsFunc(ms, func(m mapping) bool { return m.lo == l.lo && m.key == l.key }) && !slices.ContainsFunc(ms, l.misplaced)
}

// misplaced tells whether a mapping has something else of the library's file where one of its segments begins.
func (l *Library) misplaced(m mapping) bool {
	if len(l.parts) == 0 || m.hi <= l.lo || l.hi <= m.lo || m.file() != (&mapping{key: l.key}).file() {
		return false
	}
	from, err := m.offset()
	page := func(v uint64) uint64 { return v &^ (PageSize - 1) }
	return err == nil && slices.ContainsFunc(l.parts, func(p patch.Part) bool {
		at := l.lo + page(p.Addr) - page(l.parts[0].Addr)
		return m.lo <= at && at < m.hi && uint64(from)+at-m.lo != page(p.Off)
	})
}
