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
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
)

// linkWith links files and flags with the library's object in a directory of its own.
func linkWith(t *testing.T, cc string, args ...string) *fixture {
	t.Helper()
	need(t, cc)
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

// TestClassicLinking links in the ways there are.
func TestClassicLinking(t *testing.T) {
	for _, c := range []struct {
		name, cc string
		tool     string // needed besides, and its package
		flags    []string
	}{
		{"gprof's start-up code", "gcc", "", []string{"-pg", "-O1"}},
		{"gprof's start-up code, static", "gcc", "", []string{"-pg", "-O1", "-static", "-mfentry"}},
		{"copied return addresses", "gcc", "", []string{"-pg", "-O2", "-mforce-drap"}},
		{"copied return addresses, entry", "gcc", "", []string{"-pg", "-O2", "-mforce-drap", "-mfentry"}},
		{"static-pie", "gcc", "", []string{"-pg", "-O1", "-static-pie", "-fPIE"}},
		{"sections", "gcc", "", []string{"-pg", "-O1", "-ffunction-sections", "-Wl,--gc-sections", "-Wl,-z,now", "-mfentry"}},
		{"lld", "clang", "ld.lld lld", []string{"-pg", "-O1", "-fuse-ld=lld", "-mfentry"}},
		{"lld, no PIE", "clang", "ld.lld lld", []string{"-pg", "-O1", "-fuse-ld=lld", "-no-pie", "-fno-pie"}},
		{"gold", "gcc", "ld.gold binutils", []string{"-pg", "-O1", "-fuse-ld=gold"}},
		{"large model", "gcc", "", []string{"-pg", "-O1", "-mcmodel=large", "-fno-pie", "-no-pie"}},
		{"musl", "musl-gcc", "musl-gcc musl-tools", nil},
		{"call sites recorded", "gcc", "", []string{"-pg", "-O1", "-mfentry", "-mrecord-mcount", "-fcf-protection=full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if tool, pkg, ok := strings.Cut(c.tool, " "); ok {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skipf("%s is missing (package %s)", tool, pkg)
				}
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
	f := linkWith(t, "gcc", writeFile(t, "fp.S", src))
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
	out, err := f.command(t).CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "abort") || !strings.Contains(string(out), "no call open at stack address 0x") {
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
				check(ft.ModifyCall(m, arch.Site{Addr: site, Len: 5}, sym(c.entry), sym(c.caller)))
			}
			if c.on {
				check(ft.UpdateFtraceFunc(m, sym(c.call), sym("on_call")))
			}
			// switched on, off and on again: the nop is the one that is expected
			if c.follow {
				check(ft.EnableGraphCaller(m, sym(c.graph), sym("ftrace_graph_caller")))
				check(ft.DisableGraphCaller(m, sym(c.graph), sym("ftrace_graph_caller")))
				check(ft.EnableGraphCaller(m, sym(c.graph), sym("ftrace_graph_caller")))
			}
			check(os.WriteFile(f.path, image, 0o755))
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

// TestClassicSurvive runs the program of TestSurvive: coroutines, jumps, signal
// stacks, threads by the hundred, forks; once with gs in use by the program.
func TestClassicSurvive(t *testing.T) {
	for _, v := range []struct {
		name  string
		flags []string
		gs    bool
	}{
		{"mcount", []string{"-O2"}, false},
		{"fentry", []string{"-O2", "-mfentry"}, false},
		{"gs", []string{"-O2", "-mfentry"}, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			f := linkFixture(t, "gcc", "survive.c", v.flags...)
			if v.gs {
				f.env = []string{"SURVIVE_GS=1"}
			}
			for _, args := range []string{
				"calls", "signals 0", "signals 1", "signals 2", "jumps", "threads 64 64", "threads 2 600", "forks", "middle",
				"again", "coroutines 0", "coroutines 1", "big", "closefds",
			} {
				t.Run(args, func(t *testing.T) {
					out, ev := f.run(t, strings.Fields(args)...)
					expectCounts(t, out, ev)
					if ev.strays != 0 && args != "middle" || ev.lost != 0 {
						t.Errorf("%d exits without entry, %d events lost", ev.strays, ev.lost)
					}
				})
			}
		})
	}
}
