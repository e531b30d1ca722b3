//go:build linux

package tracee

import (
	"cmp"
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
// last library there are at least 128 MiB before the stack. What the room is, is known only once the library is planned
// for it, so an estimate has to do; that nobody has it is looked at again when it is mapped.

// Library is one of them.
type Library struct {
	Path   string        // in the process
	At     uint64        // where there is room for what is added, as an address of the library
	Memory *patch.Memory // set by who plans; nil: it is left alone

	pid    int
	lo, hi uint64 // where it is mapped
	first  uint64 // the end of the mapping at lo
	key    string // of that
}

const (
	roomApart = 16 << 20 // from what else is below and above the room
	roomMore  = 16 << 20 // beside what depends on the size
	roomTimes = 6        // the library's size
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

// makeRoom finds room for what is added to libraries.
func makeRoom(ms []mapping, all []*Library) {
	var taken []mapping
	for _, l := range all {
		if at := l.room(ms, taken); at != 0 {
			taken = append(taken, mapping{lo: at, hi: at + l.needs()})
			l.At = at - l.lo
		}
	}
}

func (l *Library) needs() uint64 { return roomMore + roomTimes*(l.hi-l.lo) }

// room finds room for a library; 0: there is none.
func (l *Library) room(ms, taken []mapping) uint64 {
	// Rooms adjoin each other: what is between them would be lost to the many libraries of large programs.
	all := slices.Concat(ms, taken)
	slices.SortFunc(all, func(a, b mapping) int { return cmp.Compare(a.lo, b.lo) })
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

// in tells whether the library is still loaded where it was.
func (l *Library) in(ms []mapping) bool {
	return slices.ContainsFunc(ms, func(m mapping) bool { return m.lo == l.lo && m.key == l.key })
}
