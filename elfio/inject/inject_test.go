package inject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"regexp"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// injected returns the image with the injection.
func injected(f *elfio.File, in Injection) ([]byte, error) {
	o, err := Into(f, in)
	if err != nil {
		return nil, err
	}
	return o.Bytes(), nil
}

// trampoline returns code that increments the 8-byte word at rw and jumps to entry, both PC-relative.
func trampoline(at, rw, entry uint64) []byte {
	code := []byte{
		0x48, 0xff, 0x05, 0, 0, 0, 0, // incq rw(%rip)
		0xe9, 0, 0, 0, 0, // jmp entry
	}
	binary.LittleEndian.PutUint32(code[3:], uint32(rw-(at+7)))
	binary.LittleEndian.PutUint32(code[8:], uint32(entry-(at+12)))
	return code
}

// injectTrampoline gives the image a new entry point that jumps to the old one.
func injectTrampoline(t *testing.T, raw []byte) []byte {
	t.Helper()
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: 0x3000, RWAlign: 64})
	if err != nil {
		t.Fatal(err)
	}
	rx := trampoline(l.RX, l.RW, f.Header.Entry)
	in := Injection{Layout: l, RX: rx, Entry: l.RX,
		Sections: []Section{{Name: ".fentry.text", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
			Addr: l.RX, Size: uint64(len(rx)), Align: 16}},
		Symbols: []Symbol{{Name: "fentry:start", Value: l.RX, Size: uint64(len(rx)),
			Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC)}},
	}
	if id := f.BuildID(); id != nil {
		e, err := f.BuildIDEdit(bytes.Repeat([]byte{0xab}, len(id)))
		if err != nil {
			t.Fatal(err)
		}
		in.Edits = append(in.Edits, e)
	}
	out, err := injected(f, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("slot %s, %d -> %d bytes", l.Slot, len(raw), len(out))
	return out
}

func TestInjectPrograms(t *testing.T) {
	for _, x := range elftest.Fixtures {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			raw := x.Build(t)
			elftest.RunFixture(t, raw, "untouched")
			out := injectTrampoline(t, raw)
			back, err := Undo(out)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(back, raw) {
				t.Fatal("Uninject does not give the original")
			}
			verify(t, out)
			elftest.RunFixture(t, out, "injected")
			if testtool.Have(t, "qemu-x86_64") {
				elftest.RunFixture(t, out, "injected, under qemu", "qemu-x86_64")
			}
			f, err := elfio.Parse(out)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := NewLayout(f, Memory{RW: 0, RWAlign: 0}); err != ErrInjected {
				t.Errorf("second injection: %v", err)
			}
			if len(f.Sections) == 0 {
				return
			}
			lint(t, raw, out)
			for _, tool := range tools {
				t.Run(tool.name, func(t *testing.T) {
					testtool.Need(t, tool.command[0])
					was, msg := elftest.TryTransform(t, raw, tool.command...)
					if msg == "" {
						msg = elftest.TryFixture(t, was)
					}
					if msg != "" {
						t.Skipf("does so to the untouched program too: %s", msg)
					}
					elftest.RunFixture(t, elftest.Transform(t, out, tool.command...), tool.name)
				})
			}
		})
	}
}

// tools rewrite images; what they write must still run.
var tools = []struct {
	name    string
	command []string
}{
	{"strip", []string{"strip", "%s"}},
	{"strip-debug", []string{"strip", "-g", "%s"}},
	{"objcopy", []string{"objcopy", "%s"}},
	{"eu-strip", []string{"eu-strip", "%s"}},
	{"eu-strip-debug", []string{"eu-strip", "-g", "-f", "%s.debug", "%s"}},
	{"llvm-strip", []string{"llvm-strip", "%s"}},
	{"llvm-objcopy", []string{"llvm-objcopy", "%s"}},
	{"patchelf", []string{"patchelf", "--set-rpath",
		"/nonexistent/a/rather/long/path/that/does/not/fit/anywhere", "%s"}},
}

// lint compares what the checkers say about the image before and after.
func lint(t *testing.T, before, after []byte) {
	t.Helper()
	a, b := elftest.WriteExec(t, before), elftest.WriteExec(t, after)
	for _, args := range [][]string{{"eu-elflint", "--gnu-ld"}, {"readelf", "-a", "-W"}} {
		if !testtool.Have(t, args[0]) {
			continue
		}
		was, _ := elftest.Run(append(args[:len(args):len(args)], a))
		is, _ := elftest.Run(append(args[:len(args):len(args)], b))
		if args[0] == "readelf" {
			was, is = complaints(was), complaints(is)
		}
		// Indices of sections and symbols differ, and so does the path.
		was, is = numbers.ReplaceAllString(was, "N"), numbers.ReplaceAllString(is, "N")
		was, is = strings.ReplaceAll(was, a, "FILE"), strings.ReplaceAll(is, b, "FILE")
		if was != is {
			t.Errorf("%s: before:\n%s\nafter:\n%s", args[0], was, is)
		}
	}
}

var numbers = regexp.MustCompile(` *\b[0-9]+\b`)

// complaints returns readelf's warnings and errors.
func complaints(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		if strings.Contains(line, "Warning") || strings.Contains(line, "Error") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
