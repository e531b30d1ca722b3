package amd64

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
	"golang.org/x/arch/x86/x86asm"
)

// A verdict is why Decode and objdump say different things about some bytes.
// All but verdictWrong follow from a rule that is checked for the case at hand.
type verdict string

const (
	verdictSame    verdict = ""
	verdictWrong   verdict = "DISAGREEMENT"
	verdictBad     verdict = "objdump says (bad)"
	verdictData    verdict = "objdump prints data symbols as hexadecimal"
	verdictCut     verdict = "objdump stops at the next symbol"
	verdictPrefix  verdict = "objdump prints prefixes on a line of their own"
	verdictFwait   verdict = "objdump joins fwait and the x87 instruction behind it"
	verdictRefused verdict = "refused on purpose"
)

// compare holds what objdump printed for the start of code, which is at l.addr, against Decode.
func compare(code []byte, l objdumpLine) verdict {
	in, err := Decode(code)
	n := len(l.bytes)
	switch {
	case l.text == "":
		return verdictData
	case strings.Contains(l.text, "(bad)"):
		return verdictBad
	case strings.HasPrefix(l.text, ".byte"):
		return verdictCut
	case onlyPrefixes(l.text):
		if err == nil && in.Len == n && in.Map == 0 && in.Opcode == 0x9b {
			return verdictFwait
		}
		// REX prefixes there are without effect: our instruction without them must be as much shorter.
		var rest []byte
		for _, p := range l.bytes {
			if p&0xf0 != 0x40 {
				rest = append(rest, p)
			}
		}
		rex := n - len(rest)
		in2, err2 := Decode(append(rest, code[n:min(n+maxLen, len(code))]...))
		if err == nil && err2 == nil && in.Len == in2.Len+rex || err != nil && (err == err2 || err == ErrTooLong) {
			return verdictPrefix
		}
		return verdictWrong
	case err != nil:
		if onPurpose(l.bytes, l.text, err) {
			return verdictRefused
		}
		return verdictWrong
	case in.Len != n:
		sum := 0
		for in.Opcode == 0x9b && in.Map == 0 && err == nil {
			sum += in.Len
			in, err = Decode(code[sum:])
		}
		if sum > 0 && err == nil && sum+in.Len == n && in.Map == 0 && in.Opcode&0xf8 == 0xd8 {
			return verdictFwait
		}
		return verdictWrong
	}
	kind, target := objdumpTarget(l.text)
	switch {
	case strings.Contains(l.text, "(%eip)"):
		target = uint64(uint32(target)) // as the processor has it
	case strings.Contains(l.text, "xbeginw"):
		// objdump cuts the target to 16 bits, which holds for jumps only (SDM, XBEGIN).
		target |= in.Target(l.addr) &^ 0xffff
	}
	if kind != in.PCRel || kind != PCRelNone && target != in.Target(l.addr) {
		return verdictWrong
	}
	return verdictSame
}

// onlyPrefixes: objdump ends a line after a REX prefix that is not the last prefix, and after a repeated prefix.
func onlyPrefixes(text string) bool {
	for word := range strings.FieldsSeq(text) {
		word, _, _ = strings.Cut(word, ".")
		switch word {
		case "rex", "data16", "addr32", "repz", "repnz", "lock", "cs", "ds", "es", "ss", "fs", "gs", "bnd", "notrack":
		default:
			return false
		}
	}
	return text != ""
}

// onPurpose reports whether err is one of the refusals that doc.go lists and objdump does not make.
func onPurpose(b []byte, text string, err error) bool {
	switch {
	case err == ErrInvalid && prefixedVector(b):
		return true
	case err == ErrUndecided:
		return strings.Contains(text, "ud0") || b[0] == 0xd5 || strings.Contains(string(b), "\x66") && isBranch(text)
	case strings.Contains(text, "%?"), // a segment register that does not exist
		strings.Contains(text, "%cs") && strings.Contains(text, "mov"),
		strings.Contains(text, "%cr") || strings.Contains(text, "%db"), // control registers that do not exist
		strings.Contains(text, "frstpm"),
		strings.Contains(text, "extrq"):
		return err == ErrInvalid
	}
	return false
}

// prefixedVector reports whether b is a VEX, EVEX or XOP encoding behind a prefix that must not be there.
func prefixedVector(b []byte) bool {
	forbidden := false
	for len(b) > 0 && map0[b[0]]&dPrefix != 0 {
		switch p := prefixes[b[0]]; {
		case b[0]&0xf0 == 0x40 || p&(PrefixOpSize|PrefixRep|PrefixRepne|PrefixLock) != 0:
			forbidden = true
		case p == 0: // an escape
			return forbidden && b[0] != 0x0f
		}
		b = b[1:]
	}
	return false
}

// branchMnemonic returns the mnemonic of a direct branch and its operands.
func branchMnemonic(text string) (op, args string, ok bool) {
	rest := text
	for {
		op, args, _ = strings.Cut(rest, " ")
		if !onlyPrefixes(op) {
			break
		}
		rest = strings.TrimLeft(args, " ")
		if rest == "" {
			return "", "", false
		}
	}
	args = strings.TrimLeft(args, " ")
	name, _, _ := strings.Cut(op, ",")
	if name == "" || strings.HasPrefix(args, "*") {
		return "", "", false
	}
	return op, args, name[0] == 'j' || strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "call") || strings.HasPrefix(name, "xbegin")
}

func isBranch(text string) bool { _, _, ok := branchMnemonic(text); return ok }

// objdumpTarget finds the PC-relative operand in objdump's text.
func objdumpTarget(text string) (PCRel, uint64) {
	if i := strings.Index(text, "(%rip)"); i >= 0 || strings.Contains(text, "(%eip)") {
		_, comment, ok := strings.Cut(text, "# ")
		if !ok {
			return PCRelMem, 1
		}
		comment, _, _ = strings.Cut(comment, " ")
		target, err := strconv.ParseUint(strings.TrimPrefix(comment, "0x"), 16, 64)
		if err != nil {
			return PCRelMem, 1
		}
		return PCRelMem, target
	}
	if _, args, ok := branchMnemonic(text); ok {
		args, _, _ = strings.Cut(args, " ")
		target, err := strconv.ParseUint(strings.TrimPrefix(args, "0x"), 16, 64)
		if err == nil {
			return PCRelBranch, target
		}
	}
	return PCRelNone, 0
}

// tally is the result of a file.
type tally struct {
	insts, branches, mem, evex int
	verdicts                   map[verdict]int
	inside                     map[verdict]int // of them, those within a function symbol
	examples                   map[verdict]string
}

func (a *tally) add(b tally) {
	a.insts += b.insts
	a.branches += b.branches
	a.mem += b.mem
	a.evex += b.evex
	for v, n := range b.verdicts {
		a.verdicts[v] += n
		a.inside[v] += b.inside[v]
	}
}

func (a tally) String() string {
	s := fmt.Sprintf("%d instructions, %d branches, %d rip-relative, %d EVEX", a.insts, a.branches, a.mem, a.evex)
	var vs []string
	for v := range a.verdicts {
		vs = append(vs, string(v))
	}
	sort.Strings(vs)
	for _, v := range vs {
		s += fmt.Sprintf("; %s: %d (%d in functions)", v, a.verdicts[verdict(v)], a.inside[verdict(v)])
	}
	return s
}

// Functions with bytes that objdump rightly or wrongly calls (bad). Everywhere else that happens in data only.
var notCode = map[string]bool{
	"crypto/internal/boring/sig.BoringCrypto.abi0":   true, // jumps over a signature
	"crypto/internal/boring/sig.StandardCrypto.abi0": true,
	"padlock_sha512_blocks":                          true, // rep xsha512 of VIA's processors
}

// compareFile disassembles the executable sections of file and compares up to limit instructions.
func compareFile(t *testing.T, file string, limit int) tally {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type text struct {
		addr uint64
		data []byte
	}
	var texts []text
	for _, s := range f.Sections {
		if s.Type == elf.SHT_PROGBITS && s.Flags&elf.SHF_EXECINSTR != 0 && s.Size > 0 {
			data, err := s.Data()
			if err != nil {
				t.Fatalf("%s: %s: %v", file, s.Name, err)
			}
			texts = append(texts, text{s.Addr, data})
		}
	}
	funcs := functions(f)
	res := tally{verdicts: map[verdict]int{}, inside: map[verdict]int{}, examples: map[verdict]string{}}
	k := 0
	objdump(t, func(l objdumpLine) bool {
		for i := range texts { // sections come in address order
			s := texts[(k+i)%len(texts)]
			if l.addr-s.addr < uint64(len(s.data)) {
				k = (k + i) % len(texts)
				break
			}
		}
		off := l.addr - texts[k].addr
		if off >= uint64(len(texts[k].data)) {
			t.Errorf("%s: objdump's address %#x is in no section", file, l.addr)
			return false
		}
		code := texts[k].data[off:]
		res.insts++
		if in, err := Decode(code); err == nil {
			switch in.PCRel {
			case PCRelBranch:
				res.branches++
			case PCRelMem:
				res.mem++
			}
			if in.Enc == EVEX {
				res.evex++
			}
		}
		if v := compare(code, l); v != verdictSame {
			res.verdicts[v]++
			if i := sort.Search(len(funcs), func(i int) bool { return funcs[i].Value > l.addr }) - 1; i >= 0 && l.addr-funcs[i].Value < funcs[i].Size {
				res.inside[v]++
				if (v == verdictBad || v == verdictRefused) && !notCode[funcs[i].Name] {
					t.Errorf("%s: %#x: % x  %s in %s: %s", file, l.addr, l.bytes, l.text, funcs[i].Name, v)
				}
				l.text += " in " + funcs[i].Name
			}
			if res.verdicts[v] <= 20 {
				in, err := Decode(code)
				res.examples[v] += fmt.Sprintf("\n  %#x: % x  %s; Decode: length %d, target %#x, %v", l.addr, l.bytes, l.text, in.Len, in.Target(l.addr), err)
			}
		}
		return res.insts < limit
	}, "-d", file)
	if n := res.verdicts[verdictWrong]; n > 0 {
		t.Errorf("%s: %d disagreements:%s", file, n, res.examples[verdictWrong])
	}
	for v, s := range res.examples {
		if v != verdictWrong && v != verdictBad && testing.Verbose() {
			t.Logf("%s: %s:%s", file, v, s)
		}
	}
	return res
}

// functions returns the function symbols of f by address.
func functions(f *elf.File) []elf.Symbol {
	syms, _ := f.Symbols() // absent from most installed files
	dyn, _ := f.DynamicSymbols()
	var funcs []elf.Symbol
	for _, s := range append(syms, dyn...) {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			funcs = append(funcs, s)
		}
	}
	sort.Slice(funcs, func(i, j int) bool { return funcs[i].Value < funcs[j].Value })
	return funcs
}

// Installed binaries with code of many kinds. By default the first two million
// instructions of the first few; all of all with FENTRY_WIDE=1.
var corpus = []struct {
	file string
	pkg  string
	min  bool // looked at in the short run
}{
	{"/lib/x86_64-linux-gnu/libc.so.6", "libc6", true},
	{"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "libssl3", true},
	{"/usr/bin/python3", "python3", true},
	{"/usr/bin/gdb", "gdb", true},
	{"", "", true}, // this test
	{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "libstdc++6", false},
	{"/usr/lib/x86_64-linux-gnu/libx265.so.199", "libx265-199", false},
	{"/usr/lib/x86_64-linux-gnu/libaom.so.3", "libaom3", false},
	{"/usr/lib/x86_64-linux-gnu/libSvtAv1Enc.so.1", "libsvtav1enc1", false},
	{"/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "gcc-12", false},
	{"/usr/local/go/bin/go", "golang", false},
	{"/usr/bin/node", "nodejs", false},
	{"/usr/lib/x86_64-linux-gnu/libclang-14.so.1", "libclang1-14", false},
	{"/usr/lib/x86_64-linux-gnu/libLLVM-14.so.1", "libllvm14", false},
}

func TestCorpus(t *testing.T) {
	testtool.Need(t, "objdump")
	wide := testtool.Wide()
	limit := 400_000 // each
	if wide {
		limit = math.MaxInt
	} else if testing.Short() {
		limit = 50_000
	}
	total := tally{verdicts: map[verdict]int{}, inside: map[verdict]int{}}
	for _, c := range corpus {
		if !c.min && !wide {
			continue
		}
		file := c.file
		if file == "" {
			var err error
			if file, err = os.Executable(); err != nil {
				t.Fatal(err)
			}
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			if _, err := os.Stat(file); err != nil {
				t.Skipf("%v: install %s", err, c.pkg)
			}
			r := compareFile(t, file, limit)
			t.Log(r)
			total.add(r)
		})
	}
	t.Logf("all: %v", total)
}

// TestCompiled compares code of instruction sets that installed binaries hardly
// use, from the compilers: loops over every arithmetic type, vectorised.
func TestCompiled(t *testing.T) {
	testtool.Need(t, "objdump")
	const src = `
typedef float f; typedef double d; typedef unsigned char u8; typedef short i16; typedef int i32; typedef long i64;
double table[4096]; float ftable[4096];
#define OPS(T) \
	void add_##T(T *a, T *b, T *c, int n) { for (int i = 0; i < n; i++) a[i] = b[i] + c[i]; } \
	void mul_##T(T *a, T *b, T *c, int n) { for (int i = 0; i < n; i++) a[i] = b[i] * c[i] + (T)3.5; } \
	void sel_##T(T *a, T *b, T *c, int n) { for (int i = 0; i < n; i++) a[i] = b[i] < c[i] ? b[i] : (T)7; } \
	void idx_##T(T *a, T *b, int *c, int n) { for (int i = 0; i < n; i++) a[i] = b[c[i]]; } \
	void put_##T(T *a, T *b, int *c, int n) { for (int i = 0; i < n; i++) a[c[i]] = b[i]; } \
	T sum_##T(T *a, int n) { T s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; } \
	void cvd_##T(T *a, int n) { for (int i = 0; i < n; i++) a[i] = (T)table[i]; } \
	void cvf_##T(T *a, int n) { for (int i = 0; i < n; i++) ftable[i] += (float)a[i]; }
OPS(f) OPS(d) OPS(u8) OPS(i16) OPS(i32) OPS(i64)
long popcount(long *a, int n) { long s = 0; for (int i = 0; i < n; i++) s += __builtin_popcountl(a[i]); return s; }
`
	dir := t.TempDir()
	file := filepath.Join(dir, "simd.c")
	if err := os.WriteFile(file, []byte(src), 0o666); err != nil {
		t.Fatal(err)
	}
	ran := false
	evex := 0
	for _, cc := range []string{"gcc", "clang"} {
		if !testtool.Have(t, cc) {
			continue
		}
		for _, flags := range []string{
			"-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi -mavx512vpopcntdq -mprefer-vector-width=512",
			"-O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -fcf-protection=full -mprefer-vector-width=256",
			"-O2 -mavx512f -ftree-vectorize -mavx512fp16 -fPIC",
			"-O3 -mavx2 -mfma -mbmi2", "-O3 -mxop -mfma4 -mtbm", "-O3 -m3dnow", "-O2 -mfpmath=387 -mno-sse2",
		} {
			obj := filepath.Join(dir, "simd.o")
			args := append(strings.Fields(flags), "-w", "-c", "-o", obj, file)
			if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
				if strings.Contains(string(out), "error: ") { // a flag this compiler does not have, or SSE returns without SSE
					continue
				}
				t.Fatalf("%s %v: %v\n%s", cc, args, err, out)
			}
			r := compareFile(t, obj, math.MaxInt)
			t.Logf("%s %s: %v", cc, flags, r)
			if r.insts < 500 {
				t.Errorf("%s %s: only %d instructions", cc, flags, r.insts)
			}
			evex += r.evex
			ran = true
		}
	}
	if !ran {
		t.Skip("no C compiler: install gcc or clang")
	}
	if evex < 1000 {
		t.Errorf("only %d EVEX instructions compared", evex)
	}
}

// TestXArch compares with golang.org/x/arch where that is known to be right:
// it does not know CET's and ADX's instructions, takes vzeroupper for one with
// a ModRM byte, and reports no PC-relative operand for vector encodings.
func TestXArch(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3", exe} {
		f, err := elf.Open(file)
		if err != nil {
			t.Logf("%v", err)
			continue
		}
		s := f.Section(".text")
		if f.Machine != elf.EM_X86_64 || s == nil {
			f.Close()
			continue
		}
		code, err := s.Data()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		n, compared, wrong := 0, 0, 0
		for off := 0; off < len(code) && n < 500_000 && wrong < 10; n++ {
			in, err := Decode(code[off:])
			if err != nil {
				off++
				continue
			}
			b := code[off : off+in.Len]
			off += in.Len
			if in.Enc != Legacy || in.Map > 1 || in.Map == 1 && (in.Opcode == 0x1e || in.Opcode == 0x01 || in.Opcode == 0xae || in.Opcode == 0xc7) {
				continue
			}
			x, err := x86asm.Decode(code[off-in.Len:], 64)
			if err != nil {
				if errors.Is(err, x86asm.ErrUnrecognized) {
					continue
				}
				t.Fatalf("%s+%#x: % x: x86asm: %v", file, off-in.Len, b, err)
			}
			compared++
			pcOff, pcSize := x.PCRelOff, x.PCRel
			if x.Len != in.Len || pcOff != in.PCOff || pcSize != in.PCSize {
				wrong++
				t.Errorf("%s+%#x: % x (%v): length %d, %d bytes at %d; x86asm: %d, %d at %d", file, off-in.Len, b, x,
					in.Len, in.PCSize, in.PCOff, x.Len, pcSize, pcOff)
			}
		}
		t.Logf("%s: %d of %d instructions compared", file, compared, n)
		if compared < n/2 {
			t.Errorf("%s: only %d of %d instructions compared", file, compared, n)
		}
	}
}
