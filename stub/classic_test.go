package stub

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// linkWith links files and flags with the library's object in a directory of its own.
func linkWith(t *testing.T, cc string, args ...string) *fixture {
	t.Helper()
	testtool.Need(t, cc)
	m := machineOf(cc, args)
	dir := t.TempDir()
	obj, bin := filepath.Join(dir, "fentry.o"), filepath.Join(dir, "prog")
	b, err := LibraryObject(m.elf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(obj, b, 0o644); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-pthread", "-Isrc", "-o", bin}, append(args, obj)...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", cc, strings.Join(args, " "), err, out)
	}
	return &fixture{on: m, path: bin, sites: offsetNames(t, bin)}
}

// clangARM64 makes clang compile and link for arm64.
const clangARM64 = "--target=aarch64-linux-gnu"

// machineOf returns the machine a compiler makes programs for.
func machineOf(cc string, args []string) *machine {
	if strings.HasPrefix(cc, "aarch64-") || slices.Contains(args, clangARM64) {
		return onARM64
	}
	return onAMD64
}

// writeFile writes a file for one test and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestClassicRegisters compares all registers before and behind calls of mcount and
// of return_to_handler, for the trace and for callbacks that change what they may.
func TestClassicRegisters(t *testing.T) {
	src, err := os.ReadFile("testdata/regs.S")
	if err != nil {
		t.Fatal(err)
	}
	const room = "1:\t.fill\t5, 1, 0x90\n"
	if !bytes.Contains(src, []byte(room)) {
		t.Fatal("testdata/regs.S has another site")
	}
	const hooks = `
#include "fentry.h"
static void clobber(void) {
	__asm__ volatile("pcmpeqd %%xmm0,%%xmm0\n movaps %%xmm0,%%xmm7\n movaps %%xmm0,%%xmm15\n fninit\n mov $-1,%%rax" ::: "xmm0", "xmm7", "xmm15",
		"rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory"); }
static void call(unsigned long a, unsigned long b) { (void)a; (void)b; clobber(); }
static int entry(struct ftrace_graph_ent *e) { (void)e; clobber(); return 1; }
static void ret(struct ftrace_graph_ret *r) { (void)r; clobber(); }
__attribute__((constructor)) static void begin(void) { ftrace_trace_function = call; if (GRAPH) ftrace_graph_entry = entry, ftrace_graph_return = ret; }
`
	for _, site := range []string{"__fentry__", "mcount"} {
		for _, cb := range []string{"none", "function", "graph", "none-same-fp", "graph-same-fp"} {
			t.Run(site+"-"+cb, func(t *testing.T) {
				t.Parallel()
				text := strings.Replace(string(src), room, "1:\tcall\t"+site+"\n", 1)
				cb, same := strings.CutSuffix(cb, "-same-fp")
				if same {
					// body returns with the frame pointer it was called with, as functions do, and so by the fast path
					const changed, kept = "v6: .quad 0x1626364656667686", "v6: .quad 0x7777777777777777"
					if !strings.Contains(text, changed) {
						t.Fatal("testdata/regs.S has other values")
					}
					text = strings.Replace(text, changed, kept, 1)
				}
				args := []string{"-O2", "testdata/regs.c", writeFile(t, "site.S", text)}
				if site == "mcount" {
					args = append(args, "-DBEHIND_PROLOGUE")
				}
				if cb != "none" {
					args = append(args, writeFile(t, "hooks.c", hooks), "-DGRAPH="+map[string]string{"function": "0", "graph": "1"}[cb])
				}
				f := linkWith(t, "gcc", args...)
				cmd := f.command(t)
				var out, errs bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &errs
				if err := cmd.Run(); err != nil { // its status says whether registers were changed
					t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
				}
				if strings.Contains(errs.String(), "another frame pointer") == same {
					t.Errorf("standard error: %q", errs.String())
				}
				if cb != "graph" {
					expectCounts(t, out.String(), f.read(t, filepath.Join(cmd.Dir, "fentry.data", "events")))
				}
			})
		}
	}
}

// TestClassicRegistersARM64 is that for arm64, where there are more ways to a
// trampoline and more registers.
func TestClassicRegistersARM64(t *testing.T) {
	for _, site := range []string{"_mcount", "ftrace_caller", "ftrace_regs_caller", "ftrace_mcount_caller"} {
		for _, cb := range []string{"none", "function", "graph"} {
			for _, cpu := range []string{oldCPU, testtool.NewARM64, testtool.NewARM64 + ",sve-default-vector-length=256"} {
				if cb != "graph" && cpu != testtool.NewARM64 && !testtool.Wide() {
					continue
				}
				t.Run(site+" "+cb+" "+cpu, func(t *testing.T) {
					t.Parallel()
					args := []string{"-O2", "-static", "-DSITE_CALL=" + site, "testdata/regs.c", "testdata/classic-regs.c", "testdata/classic-regs.S",
						"-DFUNCTION=" + strconv.Itoa(btoi(cb != "none")), "-DGRAPH=" + strconv.Itoa(btoi(cb == "graph"))}
					behind := strings.Contains(site, "mcount")
					if behind {
						args = append(args, "-DBEHIND_PROLOGUE")
					}
					f := linkWith(t, arm64GCC, args...)
					f.cpu = cpu
					if site != "_mcount" {
						image, err := os.ReadFile(f.path)
						if err != nil {
							t.Fatal(err)
						}
						e, err := elf.NewFile(bytes.NewReader(image))
						if err != nil {
							t.Fatal(err)
						}
						m := fileMemory{image, e.Progs}
						sym := func(name string) uint64 { return symbolAddr(t, f.path, name) }
						call, graph := "ftrace_call", "ftrace_graph_call"
						if behind {
							call, graph = "ftrace_mcount_call", "ftrace_graph_mcount_call"
						}
						var ft arm64.Ftrace
						if cb != "none" {
							err = arch.UpdateFtraceFunc(ft, m, sym(call), sym("on_call"))
						}
						if err == nil {
							err = arch.EnableGraphCaller(ft, m, sym(graph), sym("ftrace_graph_caller"))
						}
						if err == nil {
							err = runfile.WriteFile(f.path, image)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					cmd := f.command(t)
					var out, errs bytes.Buffer
					cmd.Stdout, cmd.Stderr = &out, &errs
					if err := cmd.Run(); err != nil || errs.Len() > 0 { // its status says whether registers were changed
						t.Fatalf("%v\n%s%.1000s", err, out.String(), errs.String())
					}
					if cb != "graph" {
						expectCounts(t, out.String(), f.read(t, filepath.Join(cmd.Dir, "fentry.data", "events")))
					}
				})
			}
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestClassicLinking links in the ways there are.
func TestClassicLinking(t *testing.T) {
	for _, c := range []struct {
		name, cc string
		tool     string // needed besides
		flags    []string
	}{
		{"gprof's start-up code", "gcc", "", []string{"-pg", "-O1"}},
		{"gprof's start-up code, static", "gcc", "", []string{"-pg", "-O1", "-static", "-mfentry"}},
		{"copied return addresses", "gcc", "", []string{"-pg", "-O2", "-mforce-drap"}},
		{"copied return addresses, entry", "gcc", "", []string{"-pg", "-O2", "-mforce-drap", "-mfentry"}},
		{"static-pie", "gcc", "", []string{"-pg", "-O1", "-static-pie", "-fPIE"}},
		{"sections", "gcc", "", []string{"-pg", "-O1", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,-z,now", "-mfentry"}},
		{"lld", "clang", "ld.lld", []string{"-pg", "-O1", "-fuse-ld=lld", "-mfentry"}},
		{"lld, no PIE", "clang", "ld.lld", []string{"-pg", "-O1", "-fuse-ld=lld", "-no-pie", "-fno-pie"}},
		{"gold", "gcc", "ld.gold", []string{"-pg", "-O1", "-fuse-ld=gold"}},
		{"large model", "gcc", "", []string{"-pg", "-O1", "-mcmodel=large", "-fno-pie", "-no-pie"}},
		{"musl", "musl-gcc", "musl-gcc", nil},
		{"call sites recorded", "gcc", "", []string{"-pg", "-O1", "-mfentry", "-mrecord-mcount", "-fcf-protection=full"}},
		{"arm64, gprof's start-up code", arm64GCC, "", []string{"-pg", "-O1"}},
		{"arm64, gprof's start-up code, static", arm64GCC, "", []string{"-pg", "-O2", "-static"}},
		{"arm64, static-pie", arm64GCC, "", []string{"-pg", "-O1", "-static-pie", "-fPIE"}},
		{"arm64, sections", arm64GCC, "", []string{"-pg", "-O1", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,-z,now", "-fno-plt"}},
		{"arm64, lld", "clang", "ld.lld", []string{clangARM64, "-pg", "-O1", "-fuse-ld=lld"}},
		{"arm64, lld, static", "clang", "ld.lld", []string{clangARM64, "-pg", "-O1", "-fuse-ld=lld", "-static", "-no-pie", "-fno-pie"}},
		{"arm64, gold", arm64GCC, "aarch64-linux-gnu-ld.gold", []string{"-pg", "-O1", "-fuse-ld=gold"}},
		{"arm64, large model", arm64GCC, "", []string{"-pg", "-O1", "-mcmodel=large", "-fno-pie", "-no-pie"}},
		{"arm64, stack probes", arm64GCC, "", []string{"-pg", "-O2", "-fstack-clash-protection", "-fstack-protector-all"}},
		{"arm64, local TLS models", arm64GCC, "", []string{"-pg", "-O1", "-mtls-size=12", "-mcmodel=tiny", "-fno-pie", "-no-pie"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.tool != "" {
				testtool.Need(t, c.tool)
			}
			var f *fixture
			if c.cc == "musl-gcc" {
				// its linker has no start-up code of gprof
				obj := filepath.Join(t.TempDir(), "classic.o")
				if out, err := exec.Command(c.cc, "-O1", "-pg", "-fno-pie", "-c", "-o", obj, "testdata/classic.c").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				f = linkWith(t, c.cc, "-static", "-no-pie", obj)
			} else {
				f = linkWith(t, c.cc, append([]string{"testdata/classic.c"}, c.flags...)...)
			}
			for _, what := range []string{"calls", "threads"} {
				cmd := f.command(t, what)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				ev := f.read(t, filepath.Join(cmd.Dir, "fentry.data", "events"))
				expectCounts(t, string(out), ev)
				if ev.open != 0 || ev.strays != 0 || ev.exits["aligned"] != ev.calls["aligned"] {
					t.Errorf("%s: %d calls left open, %d exits without entry", what, ev.open, ev.strays)
				}
				if _, err := os.Stat(filepath.Join(cmd.Dir, "gmon.out")); err == nil {
					t.Error("gprof has written gmon.out")
				}
			}
		})
	}
}

// TestClassicWithoutFrames: functions whose frame cannot be found run untraced, and
// that is said once and counted.
func TestClassicWithoutFrames(t *testing.T) {
	for _, flags := range [][]string{{"-static"}, {"-fPIE", "-pie"}} {
		f := linkWith(t, arm64GCC, append(flags, "-O1", "-pg", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "testdata/classic.c")...)
		cmd := f.command(t, "calls")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if n := strings.Count(string(out), "functions without unwind information are not traced"); n != 1 || strings.Count(string(out), "fentry:") != 1 {
			t.Errorf("want one message, got %q", out)
		}
		want := 0
		for _, line := range strings.Split(string(out), "\n") {
			var name string
			var n int
			if c, _ := fmt.Sscanf(line, "%s %d", &name, &n); c == 2 && strings.Count(line, " ") == 1 {
				want += 2 * n
			}
		}
		want += 2 // the nested function in outer
		if ev := f.read(t, filepath.Join(cmd.Dir, "fentry.data", "events")); len(ev.calls) != 0 || int(ev.lost) != want {
			t.Errorf("%d events lost, want %d; calls %v", ev.lost, want, ev.calls)
		}
	}
}

// TestClassicFramePointer has a function return with another frame pointer than
// it was called with: that is said, once, and nothing else happens.
func TestClassicFramePointer(t *testing.T) {
	const src = `
	.text
	.globl main
main:	push %rbp
	push %rbx
	sub $8, %rsp
	mov $3, %ebx
1:	mov $42, %ebp
	call bad
	dec %ebx
	jnz 1b
	xor %eax, %eax
	add $8, %rsp
	pop %rbx
	pop %rbp
	ret
	.globl bad
	.type bad, @function
bad:	push %rbp
	mov %rsp, %rbp
	call mcount
	pop %rbp
	inc %rbp
	ret
	.size bad, . - bad
	.section .note.GNU-stack, "", @progbits
`
	const arm64Src = `
	.text
	.globl main
	.type main, %function
main:	stp x29, x30, [sp, #-32]!
	str x19, [sp, #16]
	mov w19, #3
1:	mov x29, #42
	bl bad
	subs w19, w19, #1
	b.ne 1b
	mov w0, #0
	ldr x19, [sp, #16]
	ldp x29, x30, [sp], #32
	ret
	.globl bad
	.type bad, %function
bad:	.cfi_startproc
	stp x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov x29, sp
	bl _mcount
	ldp x29, x30, [sp], #32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	add x29, x29, #1
	ret
	.cfi_endproc
	.size bad, . - bad
	.section .note.GNU-stack, "", %progbits
`
	t.Run("amd64", func(t *testing.T) { testFramePointer(t, "gcc", src) })
	t.Run("arm64", func(t *testing.T) { testFramePointer(t, arm64GCC, arm64Src) })
}

func testFramePointer(t *testing.T, cc, src string) {
	f := linkWith(t, cc, writeFile(t, "fp.S", src))
	cmd := f.command(t)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "another frame pointer than its caller's"); n != 1 || strings.Count(string(out), "\n") != 1 {
		t.Errorf("want one message, got %q", out)
	}
	if ev := f.read(t, filepath.Join(cmd.Dir, "fentry.data", "events")); ev.calls["bad"] != 3 || ev.exits["bad"] != 3 {
		t.Errorf("%d calls and %d exits, want 3", ev.calls["bad"], ev.exits["bad"])
	}
}

// TestClassicStrayReturn jumps to return_to_handler without a call.
func TestClassicStrayReturn(t *testing.T) {
	f := linkWith(t, "gcc", writeFile(t, "stray.c", `
#include "fentry.h"
__attribute__((noinline)) int leaf(int x) { __asm__ volatile("call mcount" ::: "memory"); return x; }
int main(void) { leaf(1); unsigned long stack[64] = { 0 };
	__asm__ volatile("mov %0, %%rsp\n push %1\n ret" :: "r"(stack + 32), "r"(return_to_handler) : "memory"); return 0; }`), "-O0")
	expectStray(t, f)
}

func TestClassicStrayReturnARM64(t *testing.T) {
	expectStray(t, linkWith(t, arm64GCC, writeFile(t, "stray.c", `
#include "fentry.h"
__attribute__((noinline)) int leaf(int x) { __asm__ volatile("" ::: "memory"); return x; }
__attribute__((no_instrument_function)) int main(void) { leaf(1); static unsigned long stack[8192] __attribute__((aligned(16)));
	__asm__ volatile("mov sp, %0\n br %1" :: "r"(stack + 8000), "r"(return_to_handler) : "memory"); return 0; }`), "-O0", "-pg"))
}

func expectStray(t *testing.T, f *fixture) {
	t.Helper()
	out, err := f.command(t).CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "abort") || !strings.Contains(string(out), "without an open call at stack address 0x") {
		t.Errorf("%v, %s", err, out)
	}
}

// fileMemory is the bytes of a program's file by their addresses.
type fileMemory struct {
	image []byte
	progs []*elf.Prog
}

func (m fileMemory) at(addr uint64, n int) ([]byte, error) {
	for _, p := range m.progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr+uint64(n) <= p.Vaddr+p.Filesz {
			return m.image[p.Off+addr-p.Vaddr:][:n], nil
		}
	}
	return nil, fmt.Errorf("no bytes at %#x", addr)
}

func (m fileMemory) ReadAt(p []byte, addr uint64) error {
	b, err := m.at(addr, len(p))
	copy(p, b)
	return err
}

func (m fileMemory) WriteAt(p []byte, addr uint64) error {
	b, err := m.at(addr, len(p))
	copy(b, p)
	return err
}

// TestClassicTrampolines rewrites a program's calls of __fentry__ or mcount to
// calls of the trampolines, and those as ftrace does when it is switched on.
func TestClassicTrampolines(t *testing.T) {
	for _, c := range []struct {
		entry, caller, call, graph string
		flags                      []string
		on, follow                 bool
		want                       string
	}{
		{"__fentry__", "ftrace_caller", "ftrace_call", "ftrace_graph_call", []string{"-mfentry"}, false, false,
			"result 55 calls 0 argument 0 nested 0 partial 0 direct 0"},
		{"__fentry__", "ftrace_caller", "ftrace_call", "ftrace_graph_call", []string{"-mfentry"}, true, false,
			"result 55 calls 11 argument 45 nested 10 partial 11 direct 0"},
		{"__fentry__", "ftrace_caller", "ftrace_call", "ftrace_graph_call", []string{"-mfentry"}, true, true,
			"result 55 calls 11 argument 45 nested 10 partial 11 direct 0"},
		{"__fentry__", "ftrace_regs_caller", "ftrace_regs_call", "ftrace_graph_regs_call", []string{"-mfentry"}, true, true,
			"result 55 calls 11 argument 45 nested 10 partial 0 direct 10"},
		{"mcount", "ftrace_mcount_caller", "ftrace_mcount_call", "ftrace_graph_mcount_call", nil, true, true,
			"result 55 calls 11 argument 45 nested 10 partial 11 direct 0"},
	} {
		t.Run(fmt.Sprintf("%s-%v-%v", c.caller, c.on, c.follow), func(t *testing.T) {
			t.Parallel()
			f := linkWith(t, "gcc", append([]string{"-O2", "-no-pie", "-fno-pie", "-pg", "-mrecord-mcount", "-fno-optimize-sibling-calls", "testdata/classic-rewrite.c"}, c.flags...)...)
			image, err := os.ReadFile(f.path)
			if err != nil {
				t.Fatal(err)
			}
			e, err := elf.NewFile(bytes.NewReader(image))
			if err != nil {
				t.Fatal(err)
			}
			table, err := e.Section("__mcount_loc").Data()
			if err != nil || len(table) != 16 {
				t.Fatalf("%d bytes of __mcount_loc, %v", len(table), err)
			}
			sym := func(name string) uint64 { return symbolAddr(t, f.path, name) }
			m := fileMemory{image, e.Progs}
			var ft amd64.Ftrace
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			for ; len(table) > 0; table = table[8:] {
				site, err := ft.CallAdjust(m, binary.LittleEndian.Uint64(table))
				check(err)
				check(arch.ModifyCall(ft, m, arch.Site{Addr: site, Len: 5}, sym(c.entry), sym(c.caller)))
			}
			if c.on {
				check(arch.UpdateFtraceFunc(ft, m, sym(c.call), sym("on_call")))
			}
			// switched on, off and on again: the nop is the one that is expected
			if c.follow {
				check(arch.EnableGraphCaller(ft, m, sym(c.graph), sym("ftrace_graph_caller")))
				check(arch.DisableGraphCaller(ft, m, sym(c.graph), sym("ftrace_graph_caller")))
				check(arch.EnableGraphCaller(ft, m, sym(c.graph), sym("ftrace_graph_caller")))
			}
			check(runfile.WriteFile(f.path, image))
			out, ev := f.run(t)
			if strings.TrimSpace(out) != c.want {
				t.Errorf("got  %swant %s", out, c.want)
			}
			wantLeaf := 0
			if c.follow {
				wantLeaf = 10
			}
			if ev.calls["leaf"] != wantLeaf || ev.exits["leaf"] != wantLeaf || ev.open != 0 || ev.strays != 0 {
				t.Errorf("trace: %d calls, %d exits of leaf, want %d; %d open, %d strays", ev.calls["leaf"], ev.exits["leaf"], wantLeaf, ev.open, ev.strays)
			}
		})
	}
}

// TestClassicTrampolinesARM64 is that for arm64: sites of two instructions before the
// prologue, and calls of _mcount behind it.
func TestClassicTrampolinesARM64(t *testing.T) {
	const off, on = "result 55 calls 0 argument 0 nested 0 partial 0 direct 0", "result 55 calls 11 argument 45 nested 10 partial 11 direct 0"
	patchable := func(more ...string) []string { return append([]string{"-fpatchable-function-entry=2"}, more...) } // x9 is nowhere kept over a call
	for _, c := range []struct {
		name, cc, caller string
		flags            []string
		on, follow       bool
		want             string
	}{
		{"off", arm64GCC, "ftrace_caller", patchable(), false, false, off},
		{"on", arm64GCC, "ftrace_caller", patchable("-static", "-fno-pie", "-no-pie"), true, false, on},
		{"graph", arm64GCC, "ftrace_caller", patchable("-fPIE", "-pie"), true, true, on},
		{"landing pads", arm64GCC, "ftrace_caller", patchable("-mbranch-protection=bti"), true, true, on},
		{"signed", arm64GCC, "ftrace_caller", patchable("-mbranch-protection=standard"), true, true, on},
		{"regs", arm64GCC, "ftrace_regs_caller", patchable("-mbranch-protection=standard", "-static"), true, true,
			"result 55 calls 11 argument 45 nested 10 partial 0 direct 10"},
		{"clang", "clang", "ftrace_regs_caller", patchable(clangARM64, "-mbranch-protection=standard"), true, true,
			"result 55 calls 11 argument 45 nested 10 partial 0 direct 10"},
		{"mcount off", arm64GCC, "ftrace_mcount_caller", []string{"-pg"}, false, false, off},
		{"mcount", arm64GCC, "ftrace_mcount_caller", []string{"-pg", "-static"}, true, true,
			"result 55 calls 11 argument 0 nested 10 partial 11 direct 0"},
		{"mcount signed", arm64GCC, "ftrace_mcount_caller", []string{"-pg", "-mbranch-protection=standard"}, true, true,
			"result 55 calls 11 argument 0 nested 10 partial 11 direct 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := linkWith(t, c.cc, append([]string{"-O2", "-fno-optimize-sibling-calls", "testdata/classic-rewrite.c"}, c.flags...)...)
			f.cpu = testtool.NewARM64
			image, err := os.ReadFile(f.path)
			if err != nil {
				t.Fatal(err)
			}
			e, err := elf.NewFile(bytes.NewReader(image))
			if err != nil {
				t.Fatal(err)
			}
			m := fileMemory{image, e.Progs}
			sym := func(name string) uint64 { return symbolAddr(t, f.path, name) }
			ft := arm64.Ftrace{}
			run := func(changes ...arch.Change) {
				t.Helper()
				b := arch.Batch{Ftrace: ft, Changes: changes}
				if err := b.Run(m); err != nil {
					t.Fatal(err)
				}
			}
			var init, enable []arch.Change
			if s := e.Section("__patchable_function_entries"); s != nil {
				for _, addr := range tableAddresses(t, e, s) {
					at, err := ft.CallAdjust(m, addr)
					if err != nil {
						t.Fatal(err)
					}
					site := arch.Site{Addr: at, Len: arm64.InstLen}
					init = append(init, arm64.InitChange(site))
					enable = append(enable, arch.Change{Action: arch.Call, Site: site, New: sym(c.caller)})
				}
			} else {
				for _, name := range []string{"leaf", "work"} {
					at := callOf(t, m, sym(name), sym("_mcount"))
					enable = append(enable, arch.Change{Action: arch.Modify, Site: arch.Site{Addr: at, Len: arm64.InstLen}, Old: sym("_mcount"), New: sym(c.caller)})
				}
			}
			if len(enable) != 2 {
				t.Fatalf("%d sites", len(enable))
			}
			run(init...)
			run(enable...)
			call, graph := "ftrace_call", "ftrace_graph_call"
			if c.caller == "ftrace_mcount_caller" {
				call, graph = "ftrace_mcount_call", "ftrace_graph_mcount_call"
			}
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			if c.on {
				check(arch.UpdateFtraceFunc(ft, m, sym(call), sym("on_call")))
			}
			// switched on, off and on again: the nop is the one that is expected
			if c.follow {
				check(arch.EnableGraphCaller(ft, m, sym(graph), sym("ftrace_graph_caller")))
				check(arch.DisableGraphCaller(ft, m, sym(graph), sym("ftrace_graph_caller")))
				check(arch.EnableGraphCaller(ft, m, sym(graph), sym("ftrace_graph_caller")))
			}
			check(runfile.WriteFile(f.path, image))
			out, ev := f.run(t)
			if strings.TrimSpace(out) != c.want {
				t.Errorf("got  %swant %s", out, c.want)
			}
			wantLeaf := 0
			if c.follow {
				wantLeaf = 10
			}
			if ev.calls["leaf"] != wantLeaf || ev.exits["leaf"] != wantLeaf || ev.open != 0 || ev.strays != 0 {
				t.Errorf("trace: %d calls, %d exits of leaf, want %d; %d open, %d strays", ev.calls["leaf"], ev.exits["leaf"], wantLeaf, ev.open, ev.strays)
			}
		})
	}
}

// TestClassicBare runs a program that has landing pads enforced and no libc.
func TestClassicBare(t *testing.T) {
	f := linkWith(t, arm64GCC, "-O2", "-pg", "-mbranch-protection=standard", "-ffreestanding", "-nostdlib", "-static", "-no-pie", "-fno-pie",
		"-Wl,-z,force-bti", "-Wl,--fatal-warnings", "testdata/classic-bare.c")
	f.cpu = testtool.NewARM64
	e, err := elf.Open(f.path)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !slices.ContainsFunc(e.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_GNU_PROPERTY }) {
		t.Fatal("linked without the property")
	}
	out, ev := f.run(t)
	expectCounts(t, out, ev)
}

// tableAddresses are the addresses in a table, which position-independent programs
// have in relocations.
func tableAddresses(t *testing.T, e *elf.File, s *elf.Section) []uint64 {
	t.Helper()
	b, err := s.Data()
	if err != nil {
		t.Fatal(err)
	}
	var rela []byte
	if r := e.Section(".rela.dyn"); r != nil {
		if rela, err = r.Data(); err != nil {
			t.Fatal(err)
		}
	}
	le := binary.LittleEndian
	var addrs []uint64
	for at := s.Addr; len(b) >= 8; at, b = at+8, b[8:] {
		a := le.Uint64(b)
		for r := rela; len(r) >= 24; r = r[24:] {
			if le.Uint64(r) == at {
				a = le.Uint64(r[16:])
			}
		}
		addrs = append(addrs, a)
	}
	return addrs
}

// callOf finds the call of a function in the code from address a on.
func callOf(t *testing.T, m fileMemory, a, fn uint64) uint64 {
	t.Helper()
	for end := a + 64; a < end; a += arm64.InstLen {
		b, err := m.at(a, arm64.InstLen)
		if err != nil {
			t.Fatal(err)
		}
		if in := arm64.DecodeWord(binary.LittleEndian.Uint32(b)); in.Op == arm64.Call && in.Target(a) == fn {
			return a
		}
	}
	t.Fatal("no call")
	return 0
}

// TestClassicLive has a program rewrite its sites and the trampolines' while threads
// run through them.
func TestClassicLive(t *testing.T) {
	for _, v := range []linkVariant{
		{arm64GCC, []string{"-O2", "-fno-pie", "-static"}, oldCPU},
		{arm64GCC, []string{"-O2", "-fPIE", "-pie", "-mbranch-protection=standard"}, testtool.NewARM64},
		{arm64GCC, []string{"-O0", "-fno-pie", "-no-pie", "-mbranch-protection=standard"}, testtool.NewARM64},
	} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			f := linkWith(t, v.cc, append([]string{"-fpatchable-function-entry=2", "-fno-ipa-ra", "testdata/classic-live.c"}, v.flags...)...)
			f.cpu = v.cpu
			out, ev := f.run(t)
			expectCounts(t, out, ev)
			if ev.strays != 0 || ev.lost != 0 {
				t.Errorf("%d exits without entry, %d events lost", ev.strays, ev.lost)
			}
			if ev.open != 0 {
				t.Errorf("%d calls left open", ev.open)
			}
			cmd := f.command(t)
			cmd.Env = append(cmd.Env, "FENTRY_OFF=1")
			if b, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("without a trace: %v\n%s", err, b)
			}
		})
	}
}

// TestClassicSurvive runs the program of TestSurvive: coroutines, jumps, signal
// stacks, threads by the hundred, forks; once with gs in use by the program.
func TestClassicSurvive(t *testing.T) {
	for _, v := range []struct {
		name, cc string
		flags    []string
		gs       bool
		cpu      string
	}{
		{"mcount", "gcc", []string{"-O2"}, false, ""},
		{"fentry", "gcc", []string{"-O2", "-mfentry"}, false, ""},
		{"gs", "gcc", []string{"-O2", "-mfentry"}, true, ""},
		{"arm64", arm64GCC, []string{"-O2", "-mbranch-protection=standard"}, false, testtool.NewARM64},
		{"arm64 static", arm64GCC, []string{"-O2", "-static"}, false, oldCPU},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, v.cc, "survive.c", v.flags...)
			f.cpu = v.cpu
			if v.gs {
				f.env = []string{"SURVIVE_GS=1"}
			}
			for _, args := range []string{
				"calls", "signals 0", "signals 1", "signals 2", "jumps", "threads 64 64", "threads 2 600", "forks", "middle",
				"again", "coroutines 0", "coroutines 1", "big", "closefds",
			} {
				t.Run(args, func(t *testing.T) {
					if args == "again" && f.on.emulated() {
						cmd := f.command(t, args)
						cmd.Env = append(cmd.Env, "FENTRY_OFF=1")
						if err := cmd.Run(); err != nil {
							t.Skipf("untraced, under qemu, which cannot exec: %v", err)
						}
					}
					out, ev := f.run(t, strings.Fields(args)...)
					expectCounts(t, out, ev)
					if ev.strays != 0 && args != "middle" || ev.lost != 0 {
						t.Errorf("%d exits without entry, %d events lost", ev.strays, ev.lost)
					}
					expectThreads(t, args, ev)
				})
			}
		})
	}
}

// expectThreads expects that each thread that survive.c says it starts has its own events, and no other's: many get the
// thread pointer of one that has ended.
func expectThreads(t *testing.T, args string, ev *events) {
	t.Helper()
	var at, all int
	if n, _ := fmt.Sscanf(args, "threads %d %d", &at, &all); n == 2 && (len(ev.tasks) != all+1 || ev.open != 0) {
		t.Errorf("%d threads have events, of %d and the first; %d calls are open", len(ev.tasks), all, ev.open)
	}
}
