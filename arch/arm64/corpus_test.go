package arm64

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/debs"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// tally is the result of a file.
type tally struct {
	insts, pcrel int
	ops          map[Op]int
	verdicts     map[verdict]int
	sve, mte     int // instructions that name a z register; that are MTE's
	lse          int
	example      string
}

func newTally() tally { return tally{ops: map[Op]int{}, verdicts: map[verdict]int{}} }

func (a *tally) add(b tally) {
	a.insts += b.insts
	a.pcrel += b.pcrel
	a.sve += b.sve
	a.mte += b.mte
	a.lse += b.lse
	for v, n := range b.verdicts {
		a.verdicts[v] += n
	}
	for o, n := range b.ops {
		a.ops[o] += n
	}
}

func (a tally) String() string {
	s := fmt.Sprintf("%d instructions, %d PC-relative, %d SVE, %d MTE, %d LSE", a.insts, a.pcrel, a.sve, a.mte, a.lse)
	var vs []string
	for v, n := range a.verdicts {
		vs = append(vs, fmt.Sprintf("; %s: %d", v, n))
	}
	sort.Strings(vs)
	return s + strings.Join(vs, "")
}

// Mnemonics of instructions for atomic operations and memory tags.
var (
	sveRegister = regexp.MustCompile(`^\{?[zp][0-9]+[./]`)
	lsePrefixes = []string{"cas", "swp", "ldadd", "ldset", "ldclr", "ldeor", "ldsmax", "ldumax", "ldsmin", "ldumin", "stadd", "stset", "stclr", "steor"}
	mteNames    = map[string]bool{"irg": true, "gmi": true, "addg": true, "subg": true, "subp": true, "stg": true, "stzg": true, "st2g": true, "stz2g": true, "stgp": true, "ldg": true}
)

// compareFile disassembles the executable sections of file and compares up to limit instructions.
func compareFile(t *testing.T, file string, limit int) tally {
	t.Helper()
	res := newTally()
	objdump(t, func(l objdumpLine) bool {
		res.insts++
		in := DecodeWord(l.word)
		res.ops[in.Op]++
		if in.PCRel != PCRelNone {
			res.pcrel++
		}
		mnemonic, args, _ := strings.Cut(l.text, "\t")
		if sveRegister.MatchString(args) {
			res.sve++
		}
		if mteNames[mnemonic] {
			res.mte++
		}
		for _, p := range lsePrefixes {
			if strings.HasPrefix(mnemonic, p) {
				res.lse++
				break
			}
		}
		if v := compare(l); v != verdictSame {
			res.verdicts[v]++
			if v == verdictWrong && res.verdicts[v] <= 20 {
				res.example += fmt.Sprintf("\n  %#x: %08x %s; Decode: %v, target %#x", l.addr, l.word, l.text, in.Op, in.Target(l.addr))
			}
		}
		return res.insts < limit
	}, "-d", file)
	if n := res.verdicts[verdictWrong]; n > 0 {
		t.Errorf("%s: %d disagreements:%s", file, n, res.example)
	}
	return res
}

// Files with code of many kinds: those of the cross compiler, and in the long run
// those of Debian's packages.
var corpus = []struct{ pkg, file string }{
	{"", "libc.so.6"},
	{"", "libstdc++.so.6"},
	{"", "libasan.so.8"},
	{"", "libm.so.6"},
	{"libssl3", "usr/lib/aarch64-linux-gnu/libcrypto.so.3"},
	{"python3.11-minimal", "usr/bin/python3.11"},
	{"libaom3", "usr/lib/aarch64-linux-gnu/libaom.so.3"},
	{"libx265-199", "usr/lib/aarch64-linux-gnu/libx265.so.199"},
	{"libdav1d6", "usr/lib/aarch64-linux-gnu/libdav1d.so.6"},
	{"cpp-12", "usr/lib/gcc/aarch64-linux-gnu/12/cc1"},
	{"libopenblas0-pthread", "usr/lib/aarch64-linux-gnu/openblas-pthread/libblas.so.3"},
	{"golang-1.19-go", "usr/lib/go-1.19/bin/go"},
}

func TestCorpus(t *testing.T) {
	testtool.Need(t, objdumpTool)
	wide := testtool.Wide()
	limit := 500_000 // each
	if wide {
		limit = math.MaxInt
	} else if testing.Short() {
		limit = 50_000
	}
	total := newTally()
	for _, c := range corpus {
		if c.pkg != "" && !wide {
			continue
		}
		t.Run(filepath.Base(c.file), func(t *testing.T) {
			file := filepath.Join(sysroot, "lib", c.file)
			if c.pkg != "" {
				file = filepath.Join(debs.ARM64(t, c.pkg), c.file)
			}
			if _, err := os.Stat(file); err != nil {
				t.Skipf("%v: install libc6-arm64-cross and libstdc++6-arm64-cross", err)
			}
			r := compareFile(t, file, limit)
			t.Log(r)
			if r.insts == 0 {
				t.Error("nothing compared")
			}
			total.add(r)
		})
	}
	t.Logf("all: %v", total)
	if wide && total.insts < 2_000_000 && !t.Failed() {
		t.Errorf("only %d instructions compared", total.insts)
	}
}

const vectorSource = `
typedef float f; typedef double d; typedef unsigned char u8; typedef short i16; typedef int i32; typedef long i64;
double table[4096]; float ftable[4096];
#define OPS(T) \
	void add_##T(T *a, T *b, T *c, int n) { for (int i = 0; i < n; i++) a[i] = b[i] + c[i]; } \
	void mul_##T(T *a, T *b, T *c, int n) { for (int i = 0; i < n; i++) a[i] = b[i] * c[i] + (T)3.5; } \
	void sel_##T(T *a, T *b, T *c, int n) { for (int i = 0; i < n; i++) a[i] = b[i] < c[i] ? b[i] : (T)7; } \
	void idx_##T(T *a, T *b, int *c, int n) { for (int i = 0; i < n; i++) a[i] = b[c[i]]; } \
	void put_##T(T *a, T *b, int *c, int n) { for (int i = 0; i < n; i++) a[c[i]] = b[i]; } \
	T sum_##T(T *a, int n) { T s = 0; for (int i = 0; i < n; i++) s += a[i]; return s; } \
	int any_##T(T *a, int n) { for (int i = 0; i < n; i++) if (a[i] > (T)5) return i; return -1; } \
	void cvd_##T(T *a, int n) { for (int i = 0; i < n; i++) a[i] = (T)table[i]; } \
	void cvf_##T(T *a, int n) { for (int i = 0; i < n; i++) ftable[i] += (float)a[i]; }
OPS(f) OPS(d) OPS(u8) OPS(i16) OPS(i32) OPS(i64)
#define ATOMICS(T) \
	T aadd_##T(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
	T aand_##T(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELEASE); } \
	T aor_##T(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_ACQUIRE); } \
	T axor_##T(T *p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); } \
	T aswp_##T(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
	int acas_##T(T *p, T *e, T v) { return __atomic_compare_exchange_n(p, e, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED); }
ATOMICS(u8) ATOMICS(i16) ATOMICS(i32) ATOMICS(i64)
double dconst(void) { return 3.14159265358979; }
long lconst(long x) { return x * 0x123456789abcdefL; }
int jump(int x) { switch (x) { case 0: return 4; case 1: return 77; case 2: return 1; case 3: return 9; case 4: return 1000; case 5: return -3; } return 0; }
#ifdef __ARM_FEATURE_MEMORY_TAGGING
#include <arm_acle.h>
void *tag(void *p, unsigned m) { void *q = __arm_mte_create_random_tag(p, m); __arm_mte_set_tag(q); return __arm_mte_get_tag(q); }
long dist(void *p, void *q) { return __arm_mte_ptrdiff(p, q) + __arm_mte_exclude_tag(p, 3); }
void *next(void *p) { return __arm_mte_increment_tag(p, 2); }
#endif
`

// TestCompiled compares code of instruction sets that installed binaries hardly
// use, from the compilers: loops over every arithmetic type, vectorised; atomic
// operations; memory tags.
func TestCompiled(t *testing.T) {
	testtool.Need(t, objdumpTool)
	dir := t.TempDir()
	file := filepath.Join(dir, "simd.c")
	if err := os.WriteFile(file, []byte(vectorSource), 0o666); err != nil {
		t.Fatal(err)
	}
	total := newTally()
	for _, cc := range []string{gccTool, "clang"} {
		if !testtool.Have(t, cc) {
			continue
		}
		for _, flags := range []string{
			"-O3 -march=armv9-a+sve2+memtag", "-O3 -march=armv9-a+sve2+memtag+sve2-bitperm+sve2-sha3 -mbranch-protection=standard",
			"-O3 -march=armv8.5-a+memtag+sve -msve-vector-bits=256", "-O2 -march=armv8-a -mno-outline-atomics", "-O2 -march=armv8.1-a -fPIC",
			"-O3 -march=armv8.6-a+bf16+i8mm -mcmodel=large -fno-pic", "-Os -march=armv8-a -mcmodel=tiny -fno-pic", "-O0 -fpatchable-function-entry=2 -mbranch-protection=standard",
		} {
			obj := filepath.Join(dir, "simd.o")
			args := append(strings.Fields(flags), "-w", "-c", "-o", obj, file)
			if cc == "clang" {
				args = append([]string{"--target=aarch64-linux-gnu"}, args...)
			}
			if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
				if strings.Contains(string(out), "error: ") || strings.Contains(string(out), "sorry, unimplemented") { // a flag this compiler does not have
					t.Logf("%s %s: %s", cc, flags, out)
					continue
				}
				t.Fatalf("%s %v: %v\n%s", cc, args, err, out)
			}
			// objdump prints what a relocation will make of an adrp: link.
			exe := filepath.Join(dir, "simd")
			link := []string{"-static", "-e", "0", "--unresolved-symbols=ignore-all", "-o", exe, obj}
			if out, err := exec.Command(testtool.Path(t, "aarch64-linux-gnu-ld"), link...).CombinedOutput(); err != nil {
				t.Fatalf("%s %s: ld: %v\n%s", cc, flags, err, out)
			}
			r := compareFile(t, exe, math.MaxInt)
			t.Logf("%s %s: %v", cc, flags, r)
			if r.insts < 500 {
				t.Errorf("%s %s: only %d instructions", cc, flags, r.insts)
			}
			total.add(r)
		}
	}
	if total.insts == 0 {
		t.Skipf("no C compiler: install %s or clang", testtool.Package(gccTool))
	}
	t.Logf("all: %v", total)
	if total.sve < 1000 || total.mte < 10 || total.lse < 50 || total.ops[LoadEx] < 20 {
		t.Errorf("only %v, %d ldxr", total, total.ops[LoadEx])
	}
}

// TestBigEndian: instructions are little-endian in big-endian programs, too.
func TestBigEndian(t *testing.T) {
	cc := testtool.Path(t, gccTool)
	dir := t.TempDir()
	src, obj := filepath.Join(dir, "be.c"), filepath.Join(dir, "be.o")
	const text = "__attribute__((noinline, noclone)) static int g(int x) { __asm__ volatile(\"\"); return x; } int f(int x) { int s = 0; for (int i = 0; i < x; i++) s += g(i); return s; }"
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-mbig-endian", "-O1", "-fpatchable-function-entry=2", "-c", "-o", obj, src).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	f, err := elf.Open(obj)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.ByteOrder != binary.BigEndian {
		t.Fatalf("the object is %v", f.ByteOrder)
	}
	b, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	if IsNops(b) != 2*InstLen { // those of g
		t.Errorf("% x: %d bytes of nops", b[:8], IsNops(b))
	}
	n, branches := 0, 0
	objdump(t, func(l objdumpLine) bool {
		in, err := Decode(b[l.addr:])
		if err != nil || in.Word != l.word || compare(l) == verdictWrong {
			t.Errorf("%#x: %+v, %v; objdump: %08x %s", l.addr, in, err, l.word, l.text)
		}
		if in.PCRel == PCRelBranch {
			branches++
		}
		n++
		return true
	}, "-d", obj)
	if n != len(b)/InstLen || branches < 2 {
		t.Errorf("%d of %d instructions, %d branches", n, len(b)/InstLen, branches)
	}
}

// functions returns the function symbols of f by address.
func functions(f *elf.File) []elf.Symbol {
	syms, _ := f.Symbols()
	var funcs []elf.Symbol
	for _, s := range syms {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Section != elf.SHN_UNDEF {
			funcs = append(funcs, s)
		}
	}
	sort.Slice(funcs, func(i, j int) bool { return funcs[i].Value < funcs[j].Value })
	return funcs
}

// BenchmarkDecode decodes the text of a library from end to end.
func BenchmarkDecode(b *testing.B) {
	f, err := elf.Open(filepath.Join(sysroot, "lib/libc.so.6"))
	if err != nil {
		b.Skipf("%v: install libc6-arm64-cross", err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	rel := 0
	for b.Loop() {
		for off := 0; off+InstLen <= len(text); off += InstLen {
			if DecodeWord(binary.LittleEndian.Uint32(text[off:])).PCRel != PCRelNone {
				rel++
			}
		}
	}
	if rel == 0 {
		b.Error("nothing is PC-relative")
	}
	b.ReportMetric(float64(b.N)*float64(len(text)/InstLen)/b.Elapsed().Seconds()/1e6, "Minst/s")
}
