package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fentry-dev/fentry/cmd/fentry/internal/mcount"
)

// FuzzMcountArgs: a command line that is understood early means what it means to the command's own parser.
func FuzzMcountArgs(f *testing.F) {
	for _, s := range []string{"a.o", "-w --compat a.o", "-j3 a.o -- -b.o", "-j010 a.o", "-j08 a.o", "-j1_0 a.o", "--strip --keep-links --keep-time --sync x", "-j0x10 x", "-j -w x",
		"--compat=false x", "--", "-w -- --", "-wj2 x", "-jj x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		var early mcount.Command
		files, ok := early.Parse(args)
		if !ok {
			return
		}
		var c mcountCmd
		cmd := c.command()
		if err := cmd.ParseFlags(mcountArgs(append([]string{"mcount"}, args...))[1:]); err != nil {
			t.Fatalf("%q is understood early, later: %v", args, err)
		}
		if rest := cmd.Flags().Args(); !slices.Equal(rest, files) || c.list || c.json || c.check {
			t.Errorf("%q: files %q, later %q", args, files, rest)
		}
		if early.Jobs != c.Jobs || early.Warn != c.Warn || early.Options.Strip != c.Options.Strip || early.Options.Objects != c.Options.Objects ||
			early.Options.KeepLinks != c.Options.KeepLinks || early.Options.KeepTime != c.Options.KeepTime || early.Options.Sync != c.Options.Sync ||
			early.Options.Nop != c.Options.Nop || early.Options.Sort != c.Options.Sort || early.DepAuto != c.DepAuto || early.DepFile != c.DepFile {
			t.Errorf("%q means %+v, later %+v", args, early, c.Command)
		}
	})
}

// FuzzNumbers: what options take as a duration, a size or two times is in its range.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"10us", "1.5ms", "2", "1e15", "9223372036854775", "9223372036854775807", "64M", "8EiB", "8589934591.99999G", "9007199254740993K", "1,2", ",3s", "0x1p62", "NaN", "-1", "Inf", "1e-9,2e-9", "292y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := parseDuration(s); err == nil {
			if d < 0 {
				t.Errorf("duration %q: %v", s, d)
			}
			if want, err := time.ParseDuration(s); err != nil || d != want {
				t.Errorf("duration %q: %v, want %v", s, d, want)
			}
		}
		if n, err := parseSize(s); err == nil {
			if n < 0 {
				t.Errorf("size %q: %d", s, n)
			}
			if want, err := strconv.ParseInt(s, 10, 64); err == nil && want < 1<<53 && n != want {
				t.Errorf("size %q: %d", s, n)
			}
		}
		if from, to, err := parseTimes(s); err == nil && (from < 0 || to < 0 || to != 0 && to <= from || from > math.MaxInt64-1) {
			t.Errorf("times %q: %d, %d", s, from, to)
		}
		if _, after, ok := strings.Cut(s, ","); ok && after != "" {
			if _, to, err := parseTimes(s); err == nil && to == 0 {
				t.Errorf("times %q have no end", s)
			}
		}
	})
}

// FuzzPrograms: every command that reads an ELF file ends with an answer, whatever the file is.
func FuzzPrograms(f *testing.F) {
	files := []string{"demo/demo.elf", "testdata/section-index.elf"}
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), uint32(0), uint64(0), false)
		for _, at := range []uint32{16, 18, 32, 40, 54, 60, uint32(len(b)) - 64, uint32(len(b)) - 40} {
			f.Add(uint8(i), at, uint64(0xffff), false)
			f.Add(uint8(i), at, uint64(1)<<63, true)
		}
	}
	lines := [][]string{
		{"list"}, {"list", "-l"}, {"list", "--json"}, {"list", "--srcline"}, {"info"}, {"info", "--json"},
		{"patch", "--plan"}, {"patch", "--plan", "--json"}, {"patch", "--verify"}, {"patch", "-o", "-"}, {"patch", "--undo", "-o", "-"},
		{"mcount", "--list"}, {"mcount", "--list", "--json"}, {"mcount", "--check"},
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint32, flip uint64, cut bool) {
		b, err := os.ReadFile(files[int(which)%len(files)])
		if err != nil {
			t.Fatal(err)
		}
		w := int(at) % (len(b) - 8)
		binary.LittleEndian.PutUint64(b[w:], binary.LittleEndian.Uint64(b[w:])^flip)
		if cut {
			b = b[:w]
		}
		path := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(path, b, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			args := append(line[:len(line):len(line)], path)
			status, out, errs := inProcess(t, args...)
			if status != 0 && errs == "" && out == "" {
				t.Errorf("%q: status %d without a word", args, status)
			}
			if line[len(line)-1] != "-" {
				checkSafe(t, args, "stdout", out)
			}
			checkSafe(t, args, "stderr", errs)
		}
	})
}
