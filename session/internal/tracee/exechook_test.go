//go:build linux

package tracee

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const someMaps = `555500000000-555500001000 r--p 00000000 fe:00 100                        /usr/bin/prog
555500001000-555500003000 r-xp 00001000 fe:00 100                        /usr/bin/prog
555500010000-555500020000 r-xp 00000000 00:00 0 
7f0000000000-7f0000028000 r--p 00000000 fe:00 200                        /usr/lib/x86_64-linux-gnu/libc.so.6
7f0000028000-7f0000180000 r-xp 00028000 fe:00 200                        /usr/lib/x86_64-linux-gnu/libc.so.6
7f0000400000-7f0000500000 r-xp 00001000 fe:00 300                        /opt/with blanks/libx.so (deleted)
7ffff0000000-7ffff0001000 r-xp 00000000 00:00 0                          [vdso]
`

func TestParseMaps(t *testing.T) {
	ms := parseMaps([]byte(someMaps + "nonsense\n1-0 r-xp 0 0 0\n"))
	if len(ms) != 7 {
		t.Fatalf("%d mappings: %+v", len(ms), ms)
	}
	want := mapping{0x7f0000400000, 0x7f0000500000, "r-xp", "00001000 fe:00 300", "/opt/with blanks/libx.so (deleted)"}
	if ms[5] != want {
		t.Errorf("%+v, want %+v", ms[5], want)
	}
	if got := codeOf(ms, ms[1].lo); !slices.Equal(got, ms[4:5]) {
		t.Errorf("with a C library: %+v", got)
	}
	if got := codeOf(slices.Delete(slices.Clone(ms), 3, 5), ms[1].lo); !slices.Equal(got, ms[1:3]) {
		t.Errorf("without: %+v", got)
	}
}

func TestIsLibc(t *testing.T) {
	for file, want := range map[string]bool{
		"/lib/x86_64-linux-gnu/libc.so.6": true, "/lib/libc-2.31.so": true, "/lib/ld-musl-x86_64.so.1": true,
		"/lib/libc.musl-x86_64.so.1": true, "/memfd:libc.so.6 (deleted)": true,
		"/lib/libcrypto.so.3": false, "/lib/libcap.so.2": false, "/usr/bin/libc": false, "[vdso]": false, "": false,
	} {
		if got := isLibc(file); got != want {
			t.Errorf("%s: %v", file, got)
		}
	}
}

// A page is found below the code, as close as it goes, with room on both sides.
func TestGap(t *testing.T) {
	const room = 1 << 20
	at := func(lo, hi uint64) mapping { return mapping{lo: lo, hi: hi} }
	for _, tt := range []struct {
		name string
		ms   []mapping
		addr uint64
		want uint64 // 0: none
	}{
		{"below", []mapping{at(0x10000000, 0x10001000), at(0x40000000, 0x40010000)}, 0x40000100, 0x40000000 - room - PageSize},
		{"no room in between", []mapping{at(0x30000000, 0x30001000), at(0x3ff00000, 0x40000000), at(0x40000000, 0x40010000)},
			0x40000100, 0x3ff00000 - room - PageSize},
		{"above does not matter", []mapping{at(0x40000000, 0x40010000), at(0x40020000, 0x40030000)}, 0x40000100, 0x40000000 - room - PageSize},
		{"lowest", []mapping{at(0x400000, 0x500000)}, 0x401000, 0x400000 - room - PageSize},
		{"too low", []mapping{at(0x100000, 0x500000)}, 0x101000, 0},
		{"too far", []mapping{at(0x10000, 0x100000000), at(0x100000000, 0x100010000)}, 0x100000100, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := gap(tt.ms, tt.addr); got != tt.want || ok != (tt.want != 0) {
				t.Errorf("%#x, %v, want %#x", got, ok, tt.want)
			}
		})
	}
}

func TestExecCallFile(t *testing.T) {
	for _, tt := range []struct {
		call ExecCall
		want string
	}{
		{ExecCall{Path: "/bin/ls", Dir: atCwd}, "/proc/7/root/bin/ls"},
		{ExecCall{Path: "ls", Dir: atCwd}, "/proc/7/cwd/ls"},
		{ExecCall{Path: "ls", Dir: 5}, "/proc/7/fd/5/ls"},
		{ExecCall{Dir: 5}, "/proc/7/fd/5"},
	} {
		if got := tt.call.File(7); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.call, got, tt.want)
		}
	}
}

func FuzzParseMaps(f *testing.F) {
	f.Add([]byte(someMaps))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range parseMaps(b) {
			if m.lo >= m.hi {
				t.Errorf("%+v", m)
			}
		}
	})
}

// memoryOf reads from code as from memory.
func memoryOf(code []byte) func([]byte, int64) error {
	return func(b []byte, far int64) error {
		if far < 0 || far > int64(len(code)) || copy(b, code[far:]) < len(b) {
			return errors.New("not mapped")
		}
		return nil
	}
}

// Where programs are executed is found in the file of a C library, as in the memory, and not where the memory has changed.
func TestFindInFile(t *testing.T) {
	if !Follows {
		t.Skip("the runtime of this machine does not ask")
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	var p *process
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		var err error
		if p, err = openProcess(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if len(p.code) == 1 && isLibc(p.code[0].path) {
			break
		}
		p.mem.Close()
		if time.Now().After(deadline) {
			t.Skip("sleep is not linked with a C library")
		}
	}
	defer p.mem.Close()
	m := &p.code[0]
	if info, err := os.Stat(m.path); err != nil || !m.isOf(info) {
		t.Skip("the file system's mappings are said to be of other files: ", err)
	}
	near := func(b []byte, far int64) error { return p.ReadAt(b, m.lo+uint64(far)) }
	memory := make([]byte, m.hi-m.lo)
	n, _ := p.mem.ReadAt(memory, int64(m.lo))
	want := findExecs(memory[:n], near)
	var h ExecHooks
	if got, ok := h.findInFile(p, m, near); !ok || len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("%v, %v; in the memory %v", got, ok, want)
	}

	// So it is ahead of time, by the name of the loader.
	loader := filepath.Join(filepath.Dir(m.path), "ld-linux-x86-64.so.2")
	if isLibc(m.path) && filepath.Base(m.path) != "libc.so.6" {
		loader = m.path
	}
	h.Ahead(loader)
	if got := h.lookedAhead(m); !slices.Equal(got, want) {
		t.Errorf("ahead of time: %v, want %v", got, want)
	}
	if got, ok := h.findInFile(p, m, near); !ok || !slices.Equal(got, want) {
		t.Errorf("%v, %v with what was found ahead of time; in the memory %v", got, ok, want)
	}
	smaller := *m
	smaller.hi -= PageSize
	if got := h.lookedAhead(&smaller); got != nil {
		t.Errorf("%v of another mapping", got)
	}

	other := *m
	other.key = "00000000 00:01 1"
	if _, ok := h.findInFile(p, &other, near); ok {
		t.Error("found in another file")
	}

	last := m.lo + want[len(want)-1].at
	b := make([]byte, 8)
	if err := p.ReadAt(b, last); err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := p.WriteAt(b, last); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.findInFile(p, m, near); ok {
		t.Error("found where the memory has changed")
	}
}
