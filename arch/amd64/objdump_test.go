package amd64

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// An objdumpLine is an instruction as objdump sees it.
type objdumpLine struct {
	addr  uint64
	bytes []byte // as printed
	text  string // mnemonic, operands, comment
}

// objdump runs objdump with args and calls each for every instruction line until it returns false.
// The line's fields are only valid during the call.
func objdump(t testing.TB, each func(objdumpLine) bool, args ...string) {
	t.Helper()
	cmd := exec.Command(testtool.Path(t, "objdump"), append([]string{"-w", "-z", "--insn-width=16"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	r := bufio.NewReaderSize(out, 1<<20)
	var buf []byte
	for {
		text, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("objdump %v: %v", args, err)
		}
		l, ok := parseLine(text[:len(text)-1], &buf)
		if ok && !each(l) {
			stopped = true
			break
		}
	}
	out.Close()
	if err := cmd.Wait(); err != nil && !stopped {
		t.Fatalf("objdump %v: %v\n%s", args, err, stderr.String())
	}
}

// parseLine parses "  401000:\tf3 0f 1e fa          \tendbr64".
func parseLine(b []byte, buf *[]byte) (l objdumpLine, ok bool) {
	if len(b) == 0 || b[0] != ' ' {
		return l, false
	}
	i := bytes.IndexByte(b, '\t')
	if i < 2 || b[i-1] != ':' {
		return l, false
	}
	addr, err := strconv.ParseUint(strings.TrimSpace(string(b[:i-1])), 16, 64)
	if err != nil {
		return l, false
	}
	b = b[i+1:]
	i = bytes.IndexByte(b, '\t')
	if i < 0 {
		i = len(b)
	} else {
		l.text = string(bytes.TrimSpace(b[i+1:]))
	}
	*buf = (*buf)[:0]
	for j := 0; j+1 < i && b[j] != ' '; j += 3 {
		*buf = append(*buf, unhexDigit(b[j])<<4|unhexDigit(b[j+1]))
	}
	l.addr, l.bytes = addr, *buf
	return l, len(*buf) > 0
}

func unhexDigit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

// objdumpCodes disassembles instructions that begin codes, each on its own, and
// returns a line for each, with an empty text where objdump printed nothing at its start.
func objdumpCodes(t testing.TB, codes [][]byte) []objdumpLine {
	t.Helper()
	const stride = 32
	res := make([]objdumpLine, len(codes))
	todo := make([]int, len(codes))
	for i := range todo {
		todo[i] = i
	}
	// A code that objdump takes for a different length can swallow the start
	// of the next one, which then comes first in the next round, behind nops only.
	for round := 0; len(todo) > 0; round++ {
		if round == 50 {
			t.Fatalf("objdump never prints a line for %d codes, such as % x", len(todo), codes[todo[0]])
		}
		img := make([]byte, 0, (len(todo)+1)*stride)
		for _, i := range todo {
			slot := bytes.Clone(codes[i])
			if pad := stride - len(slot); round == 0 {
				slot = AppendNops(slot, pad) // few lines to print
			} else {
				slot = append(slot, bytes.Repeat([]byte{0x90}, pad)...)
			}
			img = append(img, slot...)
		}
		name := filepath.Join(t.TempDir(), "codes")
		if err := os.WriteFile(name, img, 0o666); err != nil {
			t.Fatal(err)
		}
		objdump(t, func(l objdumpLine) bool {
			if l.addr%stride == 0 && int(l.addr/stride) < len(todo) {
				i := todo[l.addr/stride]
				res[i] = objdumpLine{l.addr, bytes.Clone(l.bytes), l.text}
			}
			return true
		}, "-D", "-b", "binary", "-m", "i386:x86-64", name)
		os.Remove(name)
		left := todo[:0]
		for _, i := range todo {
			if res[i].bytes == nil {
				left = append(left, i)
			}
		}
		todo = left
	}
	return res
}
