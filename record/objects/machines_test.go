package objects_test

import (
	"debug/elf"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/record/objects"
)

const threeFunctions = `
int g(int);
int f(int x) { return g(x) + 1; }
static __attribute__((noinline)) int s(int x) { return g(x) * 3; }
__attribute__((weak)) int w(int x) { return s(x) - g(x); }
__attribute__((section(".exit.text"))) int e(int x) { return g(x); }
__attribute__((no_instrument_function)) int n(int x) { return g(x); }
void *p(void) { extern void *table; return table; }
`

type machineTest struct {
	cc, flags string
	form      objects.Form
	len       int
	nop       bool
}

// What each compiler leaves at the four listed functions of threeFunctions: form and length of the site. Calls in
// .exit.text become nops on the machines that have one.
var machineTests = []machineTest{
	{"gcc", "-fno-pie -pg", objects.FormCall, 5, true},
	{"gcc", "-fno-pie -pg -mfentry", objects.FormCall, 5, true},
	{"gcc", "-fPIE -pg -mfentry", objects.FormGOT, 6, true},
	{"gcc", "-fpic -pg", objects.FormGOT, 6, true},
	{"gcc", "-fno-pie -mcmodel=large -pg -mfentry", objects.FormRegister, 13, true},
	{"gcc", "-fpic -mcmodel=large -pg", objects.FormRegister, 16, true},
	{"gcc", "-mx32 -fno-pie -pg", objects.FormCall, 5, true},
	{"gcc", "-m32 -fno-pie -pg", objects.FormCall, 5, true},
	{"gcc", "-m32 -fpic -pg", objects.FormGOT, 6, true},
	{"clang", "-fPIE -pg -mfentry", objects.FormCall, 5, true},
	{"clang", "-fPIC -mcmodel=large -pg", objects.FormGOT, 13, true},
	{"clang", "-fPIC -mcmodel=large -pg -O0", objects.FormGOT, 16, true},
	{"clang", "--target=aarch64-linux-gnu -pg", objects.FormCall, 4, true},
	{"clang", "--target=aarch64_be-linux-gnu -pg", objects.FormCall, 4, true},
	{"clang", "--target=armv7-linux-gnueabihf -marm -pg", objects.FormCall, 4, true},
	{"clang", "--target=armebv7-linux-gnueabihf -marm -pg", objects.FormCall, 4, true},
	{"clang", "--target=riscv64-linux-gnu -pg", objects.FormCall, 8, false},
	{"aarch64-linux-gnu-gcc", "-pg", objects.FormCall, 4, true},
	{"aarch64-linux-gnu-gcc", "-mbig-endian -pg", objects.FormCall, 4, true},
	{"aarch64-linux-gnu-gcc", "-mabi=ilp32 -pg", objects.FormCall, 4, true},
	{"i686-linux-gnu-gcc", "-fno-pie -pg", objects.FormCall, 5, true},
	{"arm-linux-gnueabihf-gcc", "-pg", objects.FormCall, 4, true},
	{"arm-linux-gnueabihf-gcc", "-marm -pg", objects.FormCall, 4, true},
	{"arm-linux-gnueabihf-gcc", "-mbig-endian -marm -pg", objects.FormCall, 4, true},
	{"arm-linux-gnueabihf-gcc", "-mbig-endian -pg", objects.FormCall, 4, true},
	{"powerpc-linux-gnu-gcc", "-pg", objects.FormCall, 4, false},
	{"powerpc-linux-gnu-gcc", "-fPIC -pg", objects.FormCall, 4, false},
	{"powerpc64-linux-gnu-gcc", "-pg", objects.FormCall, 4, false},
	{"powerpc64le-linux-gnu-gcc", "-pg", objects.FormCall, 4, false},
	{"powerpc64le-linux-gnu-gcc", "-mprofile-kernel -pg", objects.FormCall, 4, false},
	{"powerpc64le-linux-gnu-gcc", "-mlongcall -pg", objects.FormRegister, 4, false},
	{"s390x-linux-gnu-gcc", "-pg", objects.FormSaved, 18, false},
	{"s390x-linux-gnu-gcc", "-pg -mfentry", objects.FormCall, 6, false},
	{"sparc64-linux-gnu-gcc", "-pg", objects.FormCall, 4, false},
	{"sparc64-linux-gnu-gcc", "-fPIC -pg", objects.FormCall, 4, false},
	{"mips-linux-gnu-gcc", "-pg", objects.FormGOT, 8, false},
	{"mips-linux-gnu-gcc", "-mno-abicalls -fno-pic -pg", objects.FormCall, 4, false},
	{"mips-linux-gnu-gcc", "-mno-abicalls -fno-pic -mlong-calls -pg", objects.FormRegister, 0, false},
	{"mipsel-linux-gnu-gcc", "-pg", objects.FormGOT, 8, false},
	{"mips64-linux-gnuabi64-gcc", "-pg", objects.FormGOT, 8, false},
	{"mips64-linux-gnuabi64-gcc", "-mno-abicalls -fno-pic -pg", objects.FormCall, 4, false},
	{"mips64el-linux-gnuabi64-gcc", "-pg", objects.FormGOT, 8, false},
	{"mips64el-linux-gnuabi64-gcc", "-mabi=n32 -pg", objects.FormGOT, 8, false},
	{"mips-linux-gnu-gcc", "-mlong-calls -pg", objects.FormGOT, 12, false},
	{"mips-linux-gnu-gcc", "-mxgot -pg", objects.FormGOT, 16, false},
	{"mips-linux-gnu-gcc", "-mmicromips -pg", objects.FormGOT, 8, false},
	{"mips-linux-gnu-gcc", "-mmicromips -mno-abicalls -fno-pic -pg", objects.FormCall, 4, false},
	{"mipsel-linux-gnu-gcc", "-mmicromips -mno-abicalls -fno-pic -mlong-calls -pg", objects.FormRegister, 12, false},
	{"mips64-linux-gnuabi64-gcc", "-mxgot -pg", objects.FormGOT, 16, false},
	{"mips64-linux-gnuabi64-gcc", "-mno-abicalls -fno-pic -mlong-calls -pg", objects.FormRegister, 32, false},
	{"mips64-linux-gnuabi64-gcc", "-mno-abicalls -fno-pic -mlong-calls -msym32 -pg", objects.FormRegister, 16, false},
	{"mips64-linux-gnuabi64-gcc", "-mno-abicalls -fno-pic -mlong-calls -mmicromips -pg", objects.FormRegister, 0, false},
	{"mips64el-linux-gnuabi64-gcc", "-mno-abicalls -fno-pic -mlong-calls -pg", objects.FormRegister, 32, false},
	{"sh4-linux-gnu-gcc", "-pg", objects.FormLiteral, 4, false},
	{"riscv64-linux-gnu-gcc", "-pg", objects.FormCall, 8, false},
	{"riscv64-linux-gnu-gcc", "-mno-relax -pg", objects.FormCall, 8, false},
	{"clang-19", "--target=loongarch64-linux-gnu -pg", objects.FormCall, 4, false},
	{"clang-19", "--target=loongarch64-linux-gnu -mcmodel=medium -pg", objects.FormCall, 8, false},
	{"clang-19", "--target=loongarch64-linux-gnu -mcmodel=extreme -fPIC -pg", objects.FormGOT, 24, false},
}

func TestMachines(t *testing.T) {
	for _, tt := range machineTests {
		t.Run(tt.cc+" "+tt.flags, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"-O2", "-ffreestanding"}, strings.Fields(tt.flags)...)
			b := assemble(t, tt.cc, threeFunctions, flags...)
			listed, unlisted := 0, 0
			for _, s := range sites(t, b, objects.Options{}) {
				if s.Form != tt.form || tt.len != 0 && s.Len != tt.len {
					t.Errorf("site at %#x: %v of %d bytes, want %v of %d", s.Off, s.Form, s.Len, tt.form, tt.len)
				}
				if s.Listed {
					listed++
				} else {
					unlisted++
				}
			}
			if listed != 4 || unlisted != 1 {
				t.Errorf("%d listed and %d other sites, want 4 and 1", listed, unlisted)
			}
			if tt.cc != "clang" || !strings.Contains(tt.flags, "--target") { // objdump knows the machine
				obj := filepath.Join(t.TempDir(), "x.o")
				write(t, obj, b)
				compare(t, "", objdumpOf(tt.cc), obj, &tally{})
			}
			for _, o := range []objects.Options{{}, {Compat: true}, {AllExec: true}, {KeepCalls: true}} {
				out := record(t, b, o)
				ob, err := objects.Parse(out, o)
				if err != nil {
					t.Fatal(err)
				}
				tabled, calls := 0, 0
				for s := range ob.Sites() {
					calls++
					if s.Tabled {
						tabled++
					}
				}
				want, left := 4, 5
				if o.AllExec {
					want = 5
				} else if tt.nop && !o.KeepCalls {
					left = 4
				}
				if tabled != want || calls != left {
					t.Errorf("%+v: %d entries and %d calls left, want %d and %d", o, tabled, calls, want, left)
				}
			}
		})
	}
}

// Every machine that objects may be of is among those of TestMachines, whose calls objdump confirms one by one, or has
// a test of its own. TestAgainstRecordmcount does the same with thousands of objects when FENTRY_WIDE is set.
func TestEveryMachine(t *testing.T) {
	prefixes := map[elf.Machine]string{
		elf.EM_X86_64: "gcc", elf.EM_386: "i686-", elf.EM_AARCH64: "aarch64-", elf.EM_ARM: "arm-", elf.EM_PPC: "powerpc-",
		elf.EM_PPC64: "powerpc64", elf.EM_S390: "s390x-", elf.EM_SPARCV9: "sparc64-", elf.EM_MIPS: "mips", elf.EM_SH: "sh4-",
		elf.EM_RISCV: "riscv64-", elf.EM_LOONGARCH: "clang-19",
	}
	known := 0
	for m := range elf.Machine(0x200) {
		for _, big := range []bool{false, true} {
			_, err := objects.Parse(synthetic(m, big, true, []uint32{0, 0}, 1, "_mcount"), objects.Options{})
			if err != nil {
				continue // of machines with words of 32 bits only the error says that they are known
			}
			known++
			if !slices.ContainsFunc(machineTests, func(tt machineTest) bool {
				return prefixes[m] != "" && strings.HasPrefix(tt.cc, prefixes[m])
			}) {
				t.Errorf("%v has no row in TestMachines", m)
			}
		}
	}
	if known < 8 {
		t.Errorf("only %d machines are known", known)
	}
}

// gcc for LoongArch is not in Debian 12: the calls of gcc 12, gcc 14 and of the medium model, by hand.
func TestLoongArch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		typ   uint32
		words []uint32
		len   int
	}{
		{"b26", 66, []uint32{0x54000000}, 4},                          // bl _mcount
		{"sop", 29, []uint32{0x54000000}, 4},                          // bl %plt(_mcount)
		{"call36", 110, []uint32{0x1e000001, 0x4c000021}, 8},          // pcaddu18i $ra; jirl $ra,$ra
		{"got", 75, []uint32{0x1a00000d, 0x28c001ad, 0x4c0001a1}, 12}, // pcalau12i $t1; ld.d $t1; jirl $ra,$t1
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := synthetic(258, false, true, tt.words, tt.typ, "_mcount")
			got := sites(t, b, objects.Options{})
			if len(got) != 1 || got[0].Len != tt.len || got[0].Form == objects.FormAddress || got[0].Off != 0 {
				t.Errorf("sites %+v", got)
			}
			record(t, b, objects.Options{})
			record(t, b, objects.Options{Compat: true})
		})
	}
}

// LLVM's compact relocations are refused by their name, not taken for a section without any.
func TestCompactRelocations(t *testing.T) {
	b := assemble(t, "clang-19", threeFunctions, "-O2", "-pg", "-ffreestanding", "-Wa,--crel,--allow-experimental-crel")
	if _, err := objects.Parse(b, objects.Options{}); err == nil || !strings.Contains(err.Error(), ".crel.text") ||
		!strings.Contains(err.Error(), "compact relocations are not supported") {
		t.Errorf("error %v", err)
	}
}

// What refers to a profiling function and is no call that is known is not recorded, and said: whether compilers call
// so, as gcc does through a word of the table of contents with -mlongcall on big-endian Power, or code takes the
// address.
func TestUnknown(t *testing.T) {
	const address = `extern void mcount(void); void *p(void) { return (void *)mcount; } int q(int x) { return x; }`
	for _, tt := range []struct{ cc, src, flags, says string }{
		{"gcc", address, "-pg -fno-pie", "(.text): the reference to mcount at 0x"},
		{"powerpc64-linux-gnu-gcc", threeFunctions, "-pg -mlongcall", "(.toc): the reference to _mcount at 0x"},
		{"gcc", threeFunctions, "-pg", ""},
	} {
		b := assemble(t, tt.cc, tt.src, append([]string{"-O2", "-ffreestanding"}, strings.Fields(tt.flags)...)...)
		ob, err := objects.Parse(record(t, b, objects.Options{}), objects.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if bad := slices.Collect(ob.Check()); len(bad) > 0 {
			t.Errorf("%s %s: check says %q", tt.cc, tt.flags, bad)
		}
		said, err := ob.Unknown()
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Join(said, "\n"); tt.says == "" && all != "" || !strings.Contains(all, tt.says) {
			t.Errorf("%s %s: %q, want %q", tt.cc, tt.flags, all, tt.says)
		}
	}
}
