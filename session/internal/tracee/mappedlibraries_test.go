//go:build linux

package tracee

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// Each library gets room above it that nobody else has, and that is within reach.
func TestLibraries(t *testing.T) {
	ms := parseMaps([]byte(`555555554000-555555556000 r-xp 00000000 08:01 7 /bin/program
555555556000-555555577000 rw-p 00000000 00:00 0 [heap]
7ffff7000000-7ffff7001000 r--p 00000000 08:01 8 /lib/liba.so
7ffff7001000-7ffff7002000 r-xp 00001000 08:01 8 /lib/liba.so
7ffff7002000-7ffff7003000 rw-p 00002000 08:01 8 /lib/liba.so
7ffff7003000-7ffff7004000 rw-p 00000000 00:00 0
7ffff7100000-7ffff7101000 r--p 00000000 08:01 9 /usr/share/data
7ffff7200000-7ffff7300000 r-xp 00000000 08:01 10 /lib/libb.so
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
`))
	all := libraries(ms, 0x555555555000)
	makeRoom(ms, nil, all)
	if len(all) != 2 || all[0].Path != "/lib/liba.so" || all[1].Path != "/lib/libb.so" {
		t.Fatalf("%+v", all)
	}
	type area struct{ lo, hi uint64 }
	var given []area
	for _, l := range all {
		at := l.lo + l.At
		for _, m := range ms {
			if at < m.hi && m.lo < at+l.needs() {
				t.Errorf("%s: %#x is in %+v", l.Path, at, m)
			}
		}
		for _, g := range given {
			if at < g.hi && g.lo < at+l.needs() {
				t.Errorf("%s: %#x is another's", l.Path, at)
			}
		}
		if given = append(given, area{at, at + l.needs()}); l.At == 0 || l.At+l.needs() > roomReach {
			t.Errorf("%s: %#x is not within reach", l.Path, l.At)
		}
		if !l.in(ms) || l.in(ms[:2]) {
			t.Errorf("%s is there, and then it is not", l.Path)
		}
	}
	// Everything above is taken.
	full := parseMaps([]byte("7ffff7000000-7ffff7001000 r-xp 00000000 08:01 8 /lib/liba.so\n7ffff7001000-7fffffffe000 rw-p 00000000 00:00 0\n"))
	if all := libraries(full, 0); len(all) != 1 || all[0].At != 0 {
		t.Errorf("%+v", all)
	}
}

// A library is there once each of its segments is where it belongs, whatever their permissions are.
func TestLibraryIn(t *testing.T) {
	const head = "7f0000000000-7f0000001000 r--p 00000000 08:01 8 /l.so\n"
	l := Library{lo: 0x7f0000000000, hi: 0x7f0000005000, key: "00000000 08:01 8",
		parts: []patch.Part{{Addr: 0, Off: 0}, {Addr: 0x1000, Off: 0x1000}, {Addr: 0x3df0, Off: 0x2df0}}}
	for name, tt := range map[string]struct {
		maps string
		want bool
	}{
		"loaded":    {head + "7f0000001000-7f0000003000 r-xp 00001000 08:01 8 /l.so\n7f0000003000-7f0000005000 rw-p 00002000 08:01 8 /l.so\n", true},
		"protected": {head + "7f0000001000-7f0000003000 r-xp 00001000 08:01 8 /l.so\n7f0000003000-7f0000004000 r--p 00002000 08:01 8 /l.so\n7f0000004000-7f0000005000 rw-p 00003000 08:01 8 /l.so\n", true},
		"code that is being changed": {head + "7f0000001000-7f0000002000 rw-p 00001000 08:01 8 /l.so\n7f0000002000-7f0000003000 r-xp 00002000 08:01 8 /l.so\n" +
			"7f0000003000-7f0000005000 rw-p 00002000 08:01 8 /l.so\n", true},
		"code in other memory": {head + "7f0000001000-7f0000003000 r-xp 00000000 00:00 0 \n7f0000003000-7f0000005000 rw-p 00002000 08:01 8 /l.so\n", true},
		"in a row":             {"7f0000000000-7f0000005000 r--p 00000000 08:01 8 /l.so\n", false},
		"in part":              {head + "7f0000001000-7f0000003000 r-xp 00001000 08:01 8 /l.so\n7f0000003000-7f0000005000 r--p 00003000 08:01 8 /l.so\n", false},
		"another":              {"7f0000000000-7f0000005000 r-xp 00000000 08:01 9 /m.so\n", false},
		"gone":                 {"", false},
	} {
		if have := l.in(parseMaps([]byte(tt.maps))); have != tt.want {
			t.Errorf("%s: %t", name, have)
		}
	}
}

// So do all of a large program, which lie closely together.
func TestManyLibraries(t *testing.T) {
	var maps strings.Builder
	at := uint64(0x7fff00000000)
	const many = 500
	for i := range many {
		size := uint64(1 << 20)
		if i == 3 {
			size = 130 << 20
		}
		fmt.Fprintf(&maps, "%x-%x r-xp 00000000 08:01 %d /lib/lib%d.so\n", at, at+size, i+8, i)
		at += size
	}
	fmt.Fprintf(&maps, "7fffffffe000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n")
	ms := parseMaps([]byte(maps.String()))
	all := libraries(ms, 0)
	makeRoom(ms, nil, all)
	if len(all) != many {
		t.Fatalf("%d libraries", len(all))
	}
	end := uint64(0)
	for _, l := range all {
		if l.At == 0 || l.At+l.needs() > roomReach || l.lo+l.At < end {
			t.Errorf("%s at %#x: %#x, behind %#x", l.Path, l.lo, l.At, end)
		}
		end = l.lo + l.At + l.needs()
	}
}

// What takes more than was thought is planned for another room, and nothing is where something else is.
func TestPlanIn(t *testing.T) {
	var maps strings.Builder
	const size = 1 << 20
	at := uint64(0x7fff00000000)
	for i := range 9 {
		fmt.Fprintf(&maps, "%x-%x r-xp 00000000 08:01 %d /lib/lib%d.so\n", at, at+size, i+8, i)
		at += size
	}
	fmt.Fprintf(&maps, "7fffffffe000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n")
	ms := parseMaps([]byte(maps.String()))
	all := libraries(ms, 0)
	planned := make(map[string]int)
	planIn(ms, all, func(ls []*Library) {
		for _, l := range ls {
			planned[l.Path]++
			switch l.Path {
			case "/lib/lib1.so": // is left alone
				continue
			case "/lib/lib2.so", "/lib/lib5.so":
				l.Memory = &patch.Memory{RXAddr: l.At + 1<<16, RX: make([]byte, 5*size)}
			case "/lib/lib3.so": // its journal takes much
				l.Memory = &patch.Memory{RXAddr: l.At + 1<<16, RX: make([]byte, size), Edits: make([]arch.Edit, 1<<16)}
			default:
				l.Memory = &patch.Memory{RXAddr: l.At + 1<<16, RX: make([]byte, size)}
			}
		}
	})
	var given []mapping
	for i, l := range all {
		want := 1
		if i == 2 || i == 3 || i == 5 {
			want = 2
		}
		if planned[l.Path] != want {
			t.Errorf("%s was planned %d times, want %d", l.Path, planned[l.Path], want)
		}
		if i == 1 {
			continue
		}
		m := mapping{lo: l.lo + l.At, hi: l.lo + l.At + l.takes()}
		if l.Memory.RXAddr != l.At+1<<16 || l.takes() > l.needs() {
			t.Errorf("%s: planned for %#x, and needs %#x; its room is at %#x, and is %#x", l.Path, l.Memory.RXAddr, l.takes(), l.At, l.needs())
		}
		for _, g := range append(given, ms...) {
			if m.lo < g.hi && g.lo < m.hi {
				t.Errorf("%s: %#x to %#x is %+v", l.Path, m.lo, m.hi, g)
			}
		}
		given = append(given, m)
	}
}
