package arm64

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

const (
	objdumpTool = "aarch64-linux-gnu-objdump"
	gccTool     = "aarch64-linux-gnu-gcc"
	sysroot     = "/usr/aarch64-linux-gnu"
)

// An objdumpLine is an instruction as objdump sees it.
type objdumpLine struct {
	addr uint64
	word uint32
	text string // mnemonic, operands, comment
}

// objdump runs objdump with args and calls each for every instruction line until it returns false.
func objdump(t testing.TB, each func(objdumpLine) bool, args ...string) {
	t.Helper()
	cmd := exec.Command(testtool.Path(t, objdumpTool), append([]string{"-w", "-z"}, args...)...)
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
	for {
		text, err := r.ReadSlice('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s %v: %v", objdumpTool, args, err)
		}
		l, ok := parseLine(text[:len(text)-1])
		if ok && !each(l) {
			stopped = true
			break
		}
	}
	out.Close()
	if err := cmd.Wait(); err != nil && !stopped {
		t.Fatalf("%s %v: %v\n%s", objdumpTool, args, err, stderr.String())
	}
}

// parseLine parses "  401000:\td503201f \tnop".
func parseLine(b []byte) (l objdumpLine, ok bool) {
	head, rest, ok := bytes.Cut(b, []byte(":\t"))
	if !ok || len(b) == 0 || b[0] != ' ' {
		return l, false
	}
	code, text, _ := bytes.Cut(rest, []byte("\t"))
	addr, err := strconv.ParseUint(strings.TrimSpace(string(head)), 16, 64)
	word, err2 := strconv.ParseUint(strings.TrimSpace(string(code)), 16, 32)
	if err != nil || err2 != nil || len(bytes.TrimSpace(code)) != 8 {
		return l, false // data of another size
	}
	return objdumpLine{addr, uint32(word), string(text)}, true
}

// disassemble returns objdump's text of code at addr, one line an instruction,
// columns squeezed, joined by semicolons. It skips the test where there is no objdump.
func disassemble(t testing.TB, code []byte, addr uint64) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(name, code, 0o666); err != nil {
		t.Fatal(err)
	}
	var lines []string
	objdump(t, func(l objdumpLine) bool {
		lines = append(lines, strings.Join(strings.Fields(l.text), " "))
		return true
	}, "-D", "-b", "binary", "-m", "aarch64", fmt.Sprintf("--adjust-vma=%#x", addr), name)
	return strings.Join(lines, "; ")
}

// A verdict is why Decode and objdump say different things about a word.
type verdict string

const (
	verdictSame      verdict = ""
	verdictWrong     verdict = "DISAGREEMENT"
	verdictData      verdict = "objdump takes it for data"
	verdictUndefined verdict = "objdump does not know it"
)

// compare holds what objdump printed against Decode.
func compare(l objdumpLine) verdict {
	in := DecodeWord(l.word)
	text, _, _ := strings.Cut(l.text, " <")
	text, _, _ = strings.Cut(text, "//")
	text = strings.TrimRight(text, " ")
	mnemonic, args, _ := strings.Cut(text, "\t")
	switch {
	case strings.HasPrefix(mnemonic, ".inst"):
		if in.PCRel == PCRelNone || in.Op == Cb || in.PCRel == PCRelSign { // the latter are newer than objdump
			return verdictUndefined
		}
		return verdictWrong
	case strings.HasPrefix(mnemonic, "."), mnemonic == "":
		return verdictData
	}
	op := mnemonicOp(mnemonic, args)
	if l.word == 0xd50324ff { // hint #0x27 to this objdump
		op = SignPC
	}
	if op != in.Op {
		return verdictWrong
	}
	if in.PCRel == PCRelNone {
		return verdictSame
	}
	last := args[strings.LastIndexAny(args, " \t,")+1:]
	target, err := strconv.ParseUint(strings.TrimPrefix(last, "0x"), 16, 64)
	if err != nil || target != in.Target(l.addr) {
		return verdictWrong
	}
	return verdictSame
}

var mnemonics = map[string]Op{
	"b": Jmp, "bl": Call, "blr": CallInd, "br": JmpInd, "cbz": Cbz, "cbnz": Cbz, "tbz": Tbz, "tbnz": Tbz,
	"adr": Adr, "adrp": Adrp, "nop": Nop, "bti": Bti, "paciasp": PacSP, "pacibsp": PacSP,
	"paciaz": Pac, "pacibz": Pac, "pacia1716": Pac, "pacib1716": Pac,
	"autiasp": Aut, "autibsp": Aut, "autiaz": Aut, "autibz": Aut, "autia1716": Aut, "autib1716": Aut, "xpaclri": Aut,
	"hint": Hint, "yield": Hint, "wfe": Hint, "wfi": Hint, "sev": Hint, "sevl": Hint, "dgh": Hint, "esb": Hint, "psb": Hint, "tsb": Hint, "csdb": Hint,
	"clrbhb": Hint, "clearbhb": Hint, "svc": Syscall, "hvc": Trap, "smc": Trap, "dcps1": Trap, "dcps2": Trap, "dcps3": Trap, "brk": Brk, "hlt": Hlt, "udf": Udf,
	"ret": Ret, "retaa": Ret, "retab": Ret, "eret": Eret, "eretaa": Eret, "eretab": Eret, "drps": Eret, "clrex": Clrex,
}

func init() {
	for _, m := range []string{"aa", "ab", "aaz", "abz"} {
		mnemonics["br"+m], mnemonics["blr"+m] = JmpInd, CallInd
	}
	for _, m := range []string{"xr", "axr"} {
		for _, size := range []string{"", "b", "h"} {
			mnemonics["ld"+m+size] = LoadEx
		}
	}
	for _, m := range []string{"xr", "lxr"} {
		for _, size := range []string{"", "b", "h"} {
			mnemonics["st"+m+size] = StoreEx
		}
	}
	mnemonics["ldxp"], mnemonics["ldaxp"], mnemonics["stxp"], mnemonics["stlxp"] = LoadEx, LoadEx, StoreEx, StoreEx
}

// mnemonicOp returns the class that objdump's text says.
func mnemonicOp(mnemonic, args string) Op {
	if strings.HasPrefix(mnemonic, "b.") || strings.HasPrefix(mnemonic, "bc.") {
		return Jcc
	}
	if strings.Contains(args, "[") {
		if mnemonic == "adr" { // SVE's, of vectors
			return Other
		}
	} else {
		switch mnemonic {
		case "ldr":
			if strings.ContainsAny(args[:1], "sdq") {
				return LdrLitFP
			}
			return LdrLit
		case "ldrsw":
			return LdrLit
		case "prfm":
			return PrfmLit
		}
	}
	return mnemonics[mnemonic] // Other if there is none
}

// compareWords disassembles words and compares each.
func compareWords(t *testing.T, words []uint32) (known int) {
	t.Helper()
	const addr = 0x7f_1234_5000
	code := make([]byte, 0, len(words)*InstLen)
	for _, w := range words {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	name := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(name, code, 0o666); err != nil {
		t.Fatal(err)
	}
	n, wrong := 0, 0
	objdump(t, func(l objdumpLine) bool {
		n++
		switch v := compare(l); v {
		case verdictSame:
			known++
		case verdictUndefined:
		default:
			if wrong++; wrong <= 20 {
				in := DecodeWord(l.word)
				t.Errorf("%#x: %08x %q: %s: %v, target %#x", l.addr, l.word, l.text, v, in.Op, in.Target(l.addr))
			}
		}
		return true
	}, "-D", "-b", "binary", "-m", "aarch64", fmt.Sprintf("--adjust-vma=%#x", addr), name)
	os.Remove(name)
	if n != len(words) {
		t.Errorf("objdump printed %d of %d words", n, len(words))
	}
	return known
}
