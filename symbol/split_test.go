package symbol

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestSplit: a program whose debug information is in .dwo files, or in one .dwp file, shows the frames of one that has it
// itself; without those files, and with one of another compilation, lines only.
func TestSplit(t *testing.T) {
	for _, compiler := range []string{"g++", "clang++"} {
		t.Run(compiler, func(t *testing.T) {
			testtool.Need(t, compiler, "llvm-dwp")
			dir := t.TempDir()
			do := commandsIn(t, dir)
			for name, src := range map[string]string{"a.cc": altSource, "b.cc": "int more(int x) { return x + 1; }\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			build := func(out string, flags ...string) {
				for _, name := range []string{"a", "b"} {
					do(compiler, append([]string{"-O2", "-g", "-gdwarf-5", "-c", name + ".cc", "-o", name + ".o"}, flags...)...)
				}
				do(compiler, "a.o", "b.o", "-o", out)
			}
			none := Options{DebugDirs: []string{}}
			build("whole")
			want := frameText(t, filepath.Join(dir, "whole"), none)
			build("split", "-gsplit-dwarf")
			program := filepath.Join(dir, "split")
			if got := frameText(t, program, none); got != want || strings.Count(want, "Inlined:true") < 10 {
				t.Errorf("with .dwo files:\n%s\nwant\n%s", got, want)
			}
			do("llvm-dwp", "-e", "split", "-o", "split.dwp")
			do("mv", "a.dwo", "a.away")
			do("mv", "b.dwo", "b.away")
			if got := frameText(t, program, none); got != want {
				t.Errorf("with a .dwp file:\n%s\nwant\n%s", got, want)
			}
			do("rm", "split.dwp")
			lines := frameText(t, program, none)
			if strings.Contains(lines, "Inlined:true") || !strings.Contains(lines, "a.cc") {
				t.Errorf("without the files:\n%s", lines)
			}
			do("cp", "b.away", "a.dwo") // another unit's
			if got := frameText(t, program, none); got != lines {
				t.Errorf("with another file:\n%s\nwant\n%s", got, lines)
			}
			b, err := os.ReadFile(filepath.Join(dir, "a.away"))
			if err != nil {
				t.Fatal(err)
			}
			for cut := 64; cut < len(b); cut += len(b) / 16 { // what is damaged is not used, or an error
				if err := os.WriteFile(filepath.Join(dir, "a.dwo"), b[:cut], 0o644); err != nil {
					t.Fatal(err)
				}
				tab, err := Open(program, none)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range tab.Funcs() {
					tab.Frames(f.Addr)
				}
				tab.Close()
			}
		})
	}
}

// FuzzContributions: an index of units never leads outside of the sections.
func FuzzContributions(f *testing.F) {
	le := binary.LittleEndian
	index := make([]byte, 16+8+4+8*3)
	for i, v := range []uint32{5, 2, 1, 1, 0x44434241, 0x48474645, 1, dwInfo, dwAbbrev, 4, 8, 16, 24} {
		le.PutUint32(index[4*i:], v)
	}
	f.Add(index, "ABCDEFGH")
	f.Fuzz(func(t *testing.T, index []byte, id string) {
		whole := bytes.Repeat([]byte{1}, 64)
		sec := map[int][]byte{dwInfo: whole, dwAbbrev: whole, dwLine: whole}
		if err := contributions(le, index, []byte(id), sec); err != nil {
			return
		}
		for k, b := range sec {
			if len(b) > len(whole) {
				t.Errorf("section %d has %d bytes", k, len(b))
			}
		}
	})
}
