package symbol

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// TestFrames compares functions and lines of inlined calls with addr2line -i.
func TestFrames(t *testing.T) {
	for _, tt := range []struct{ compiler, flags string }{
		{"g++", "-g -O2 -gdwarf-4"},
		{"g++", "-g -O2 -gdwarf-5"},
		{"g++", "-g -O3 -ffunction-sections"},
		{"clang++", "-g -O2 -gdwarf-4"},
	} {
		t.Run(tt.compiler+" "+tt.flags, func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, "addr2line")
			img := compile(t, tt.compiler, strings.Fields(tt.flags)...)
			tab, err := Open(img, Options{DebugDirs: []string{}})
			if err != nil {
				t.Fatal(err)
			}
			defer tab.Close()
			var in strings.Builder
			addrs := textAddrs(t, tab)
			for _, a := range addrs {
				fmt.Fprintf(&in, "%#x\n", a)
			}
			out := run(t, in.String(), "addr2line", "-a", "-f", "-i", "-e", img)
			blocks := strings.Split(out, "0x0000")[1:]
			if len(blocks) != len(addrs) {
				t.Fatalf("%d answers for %d addresses", len(blocks), len(addrs))
			}
			inlined, wrong := 0, 0
			for i, a := range addrs {
				frames, err := tab.Frames(a)
				if err != nil {
					t.Fatal(err)
				}
				if len(frames) > 1 {
					inlined++
				}
				want := oracle(blocks[i])
				if _, ok := tab.Lookup(a); !ok || slices.ContainsFunc(want, func(f Frame) bool { return f.Line.Line == 0 }) {
					continue // between functions, or code without lines
				}
				same := len(frames) == len(want)
				for k := 0; same && k < len(frames); k++ {
					f, w := frames[k], want[k]
					w.Func, _, _ = strings.Cut(w.Func, ".cold")
					// Of inlined functions without a raw name, addr2line names the one around.
					same = filepath.Base(f.Line.File) == w.Line.File && f.Line.Line == w.Line.Line &&
						(f.Func == w.Func || f.Inlined && !Mangled(f.Func)) && f.Inlined == (k < len(frames)-1)
				}
				if !same {
					if wrong++; wrong < 10 {
						t.Errorf("%#x: %v, addr2line says %v", a, frames, want)
					}
				}
			}
			if inlined < 10 {
				t.Errorf("only %d of %d addresses are in inlined calls", inlined, len(addrs))
			}
		})
	}
}

// oracle is one answer of addr2line -a -f -i: the address, then a line with a function and one with a place each.
func oracle(block string) (out []Frame) {
	lines := strings.Split(strings.TrimSpace(block), "\n")[1:]
	for ; len(lines) >= 2; lines = lines[2:] {
		file, num, _ := strings.Cut(lines[1], ":")
		num, _, _ = strings.Cut(num, " (discriminator")
		n, _ := strconv.Atoi(num)
		out = append(out, Frame{Func: lines[0], Line: Line{filepath.Base(file), n}})
	}
	return out
}
