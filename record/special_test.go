package record

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/runfile"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// fn is an assembler function with a size.
func fn(name, body string) string {
	return fmt.Sprintf(".globl %[1]s\n.type %[1]s,@function\n%[1]s:\n.cfi_startproc\n%[2]s\n.cfi_endproc\n"+
		".size %[1]s,.-%[1]s\n", name, body)
}

// pfe puts a function into __patchable_function_entries.
func pfe(label string) string {
	return fmt.Sprintf(".section __patchable_function_entries,\"aw\"\n.quad %s\n.text\n", label)
}

func mcountLoc(label string) string {
	return fmt.Sprintf(".section __mcount_loc,\"aw\"\n.quad %s\n.text\n", label)
}

const fentryStub = ".hidden __fentry__\n" + // the profiling function itself
	".globl __fentry__\n.type __fentry__,@function\n__fentry__: ret\n.size __fentry__,.-__fentry__\n"

const mcountStub = ".globl _mcount\n.type _mcount,@function\n_mcount: ret\n.size _mcount,.-_mcount\n"

// TestEntries looks at shapes no compiler makes, or rarely. The image starts at the function start.
func TestEntries(t *testing.T) {
	start := fn("_start", "ud2")
	tests := []struct {
		name, text string
		args       string
		want       string // "function: kind reason +offset length", one a line
	}{
		{
			name: "entry point",
			text: fn("_start", "call __fentry__\nud2") + fentryStub,
			want: "_start: fentry-call entry-point +0 5",
		},
		{
			name: "middle of a function",
			text: start + fn("f", "push %rax\ncall __fentry__\npop %rax\nret") + fentryStub,
			want: "f: fentry-call not-at-entry +1 5",
		},
		{
			name: "nops and a landing pad first",
			text: start + fn("f", "endbr64\nnop\nnopl 8(%rax)\ncall __fentry__\nret") + fentryStub,
			want: "f: fentry-call  +9 5",
		},
		{
			name: "branch into the nops, near and backward",
			text: start + fn("f", "1: nop\n2: nop\nnop\nnop\nnop\ndec %edi\njnz 2b\nret") + pfe("f"),
			want: "f: patchable jump-into-site +0 5",
		},
		{
			name: "branch to the first and behind the last byte",
			text: start + fn("f", "1: .rept 5\nnop\n.endr\n2: dec %edi\njnz 1b\ndec %esi\njnz 2b\nret") + pfe("f"),
			want: "f: patchable  +0 5",
		},
		{
			name: "branch into the nops from far",
			text: start + fn("f", "nop\n2: .rept 4\nnop\n.endr\n.rept 100\nmov 0x12345678(%rax),%ecx\n.endr\njmp 2b") + pfe("f"),
			want: "f: patchable jump-into-site +0 5",
		},
		{
			name: "branch into nops that are not needed",
			text: start + fn("f", ".rept 5\nnop\n.endr\nnopl 8(%rax)\n2: nop\ndec %edi\njnz 2b\nret") + pfe("f"),
			want: "f: patchable  +0 9",
		},
		{
			name: "branch into the sixth byte, in the middle of a nop",
			text: start + fn("f", "nop\n.byte 0x0f,0x1f,0x80,0,0\n2: .byte 0,0\ndec %edi\njnz 2b\nret") + pfe("f"),
			want: "f: patchable jump-into-site +0 8",
		},
		{
			name: "immediate that looks like a branch into the nops",
			text: start + fn("f", ".rept 5\nnop\n.endr\n1: mov $(f+2-2f),%eax\n2: ret") + pfe("f"),
			want: "f: patchable  +0 5",
		},
		{
			name: "nops of two functions without code between them",
			text: start + fn("f", ".rept 5\nnop\n.endr") + fn("g", ".rept 6\nnop\n.endr\nret") + pfe("f") + pfe("g"),
			want: "f: patchable  +0 5\ng: patchable  +0 6",
		},
		{
			name: "too few nops",
			text: start + fn("f", ".rept 4\nnop\n.endr\nret") + pfe("f"),
			want: "f: patchable short-site +0 4",
		},
		{
			name: "a function that ends within its nops",
			text: start + fn("f", ".rept 4\nnop\n.endr") + fn("g", "ret") + pfe("f"),
			want: "f: patchable short-function +0 4\ng: none no-site +0 0",
		},
		{
			name: "listed, but no nops",
			text: start + fn("f", "xor %eax,%eax\nxor %ecx,%ecx\nret") + pfe("f"),
			want: "f: patchable unexpected-bytes +0 0",
		},
		{
			name: "listed in data",
			text: start + ".data\nd: .quad 0\n.text\n" + pfe("d"),
			want: "d: patchable not-executable +0 0",
		},
		{
			name: "a call listed that goes elsewhere",
			text: start + fn("f", "call g\nret") + fn("g", "call __fentry__\nret") + fentryStub + mcountLoc("f") +
				mcountLoc("g"),
			want: "f: none other-callee +0 5\ng: fentry-call  +0 5",
		},
		{
			name: "a profiling function of another name, known by the table",
			text: start + fn("f", "call prof\nret") + fn("g", "call prof\nret") + fn("prof", "ret") + mcountLoc("f") +
				mcountLoc("g"),
			want: "f: fentry-call  +0 5\ng: fentry-call  +0 5",
		},
		{
			name: "listed, neither call nor nop",
			text: start + fn("f", "xor %eax,%eax\nret") + mcountLoc("f"),
			want: "f: none unexpected-bytes +0 0",
		},
		{
			name: "entries that name the second byte",
			text: start + fn("f", "call *slot(%rip)\nret") + fn("g", ".byte 0x67\ncall __fentry__\nret") +
				fn("h", "endbr64\ncall *slot(%rip)\nret") + fentryStub +
				".section .got.plt,\"aw\"\nslot: .quad __fentry__\n.text\n" + mcountLoc("f+1") + mcountLoc("g+1") +
				mcountLoc("h+5"),
			args: "-no-pie",
			want: "f: fentry-call  +0 6\ng: fentry-call  +0 6\nh: fentry-call  +4 6",
		},
		{
			name: "behind an end that looks like a prefix",
			text: start + ".byte 0x67\n" + fn("f", "call __fentry__\nret") + ".byte 0x67\n" + fn("g", "call __fentry__\nret") +
				fentryStub + mcountLoc("g"),
			want: "f: fentry-call  +0 5\ng: fentry-call  +0 5",
		},
		{
			name: "a nop in the place of a call behind the prologue",
			text: start + fn("f", "push %rbp\nmov %rsp,%rbp\nsub $32,%rsp\n1: .byte 0x0f,0x1f,0x44,0,0\nleave\nret") +
				mcountLoc("1b"),
			want: "f: nop-mcount  +8 5",
		},
		{
			name: "frames",
			text: start + mcountStub +
				fn("good", "push %rbp\nmov %rsp,%rbp\npush %rbx\nsub $24,%rsp\nmov %edi,-20(%rbp)\ncall _mcount\nleave\nret") +
				fn("other_encoding", "push %rbp\n.byte 0x48,0x8b,0xec\ncall _mcount\npop %rbp\nret") +
				fn("late", "push %rbx\npush %rbp\nmov %rsp,%rbp\ncall _mcount\npop %rbp\npop %rbx\nret") +
				fn("balanced", "push %rax\npop %rcx\nsub $16,%rsp\nlea 16(%rsp),%rsp\npush %rbp\nmov %rsp,%rbp\ncall _mcount\n"+
					"pop %rbp\nret") +
				fn("none", "sub $8,%rsp\ncall _mcount\nadd $8,%rsp\nret") +
				fn("lost", "push %rbp\nmov %rsp,%rbp\nmov %rdi,%rbp\ncall _mcount\npop %rbp\nret") +
				fn("popped", "push %rbp\nmov %rsp,%rbp\npop %rbp\ncall _mcount\nret") +
				fn("left", "push %rbp\nmov %rsp,%rbp\nleave\ncall _mcount\nret") +
				fn("exchanged", "push %rbp\nmov %rsp,%rbp\nxchg %rax,%rbp\ncall _mcount\nret") +
				fn("aligned", "push %rbp\nmov %rsp,%rbp\nand $-32,%rsp\ncall _mcount\nleave\nret") +
				fn("drap", "lea 8(%rsp),%r10\nand $-32,%rsp\npush -8(%r10)\npush %rbp\nmov %rsp,%rbp\ncall _mcount\nleave\n"+
					"lea -8(%r10),%rsp\nret") +
				fn("unknown", "and $-32,%rsp\npush %rbp\nmov %rsp,%rbp\ncall _mcount\nleave\nret") +
				fn("probed", "push %rbp\nmov %rsp,%rbp\nlea -8192(%rsp),%r11\n1: sub $4096,%rsp\norq $0,(%rsp)\ncmp %r11,%rsp\n"+
					"jne 1b\ncall _mcount\nleave\nret") +
				fn("branch_first", "test %edi,%edi\nje 1f\n1: push %rbp\nmov %rsp,%rbp\ncall _mcount\nleave\nret") +
				fn("vectors", "push %rbp\nmov %rsp,%rbp\ntest %al,%al\nje 1f\nmovaps %xmm5,-0x80(%rbp)\n"+
					"movaps %xmm4,-0x70(%rbp)\n1: call _mcount\nleave\nret") +
				fn("behind", "push %rbp\nmov %rsp,%rbp\njmp 1f\nnop\n1: call _mcount\nleave\nret"),
			want: `good: mcount-call  +12 5
other_encoding: mcount-call  +4 5
late: mcount-call no-frame-pointer +5 5
balanced: mcount-call  +15 5
none: mcount-call no-frame-pointer +4 5
lost: mcount-call no-frame-pointer +7 5
popped: mcount-call no-frame-pointer +5 5
left: mcount-call no-frame-pointer +5 5
exchanged: mcount-call no-frame-pointer +6 5
aligned: mcount-call  +8 5
drap: mcount-call realigned-frame +17 5
unknown: mcount-call no-frame-pointer +8 5
probed: mcount-call  +29 5
branch_first: mcount-call no-frame-pointer +8 5
vectors: mcount-call  +16 5
behind: mcount-call not-at-entry +7 5`,
		},
		{
			name: "a program's own function that is called mcount",
			text: start + fn("mcount", "push %rbp\nmov %rsp,%rbp\nmov %edi,-4(%rbp)\npop %rbp\nret") +
				fn("f", "push %rbp\nmov %rsp,%rbp\nmov $3,%edi\ncall mcount\npop %rbp\nret"),
			want: "f: none no-site +0 0",
		},
		{
			name: "a profiling function that is called mcount only",
			text: start + fn("mcount",
				"push %rax\npush %rcx\npush %rdx\npush %rsi\npush %rdi\npush %r8\npush %r9\nmov 56(%rsp),%rdi\n"+
					"mov 8(%rbp),%rsi\ncall f\n"+
					"pop %r9\npop %r8\npop %rdi\npop %rsi\npop %rdx\npop %rcx\npop %rax\nret") +
				fn("f", "push %rbp\nmov %rsp,%rbp\ncall mcount\npop %rbp\nret"),
			want: "f: mcount-call  +4 5",
		},
		{
			name: "two sites in one function",
			text: start + fn("f", ".rept 5\nnop\n.endr\ncall __fentry__\nret") + fentryStub + pfe("f"),
			want: "f: patchable  +0 5\nf: fentry-call duplicate-site +5 5",
		},
		{
			name: "nops no table lists",
			text: start + fn("f", ".rept 6\nnop\n.endr\nret") + fn("g", "endbr64\n.rept 5\nnop\n.endr\nret") +
				fn("h", ".byte 0x66,0x0f,0x1f,0x44,0,8\nret") +
				fn("four", ".rept 4\nnop\n.endr\nret") + fn("aligned", ".byte 0x0f,0x1f,0x44,0,0\nret") +
				fn("f.cold", ".rept 5\nnop\n.endr\nret") +
				fn("frame", ".cfi_def_cfa_offset 32\n.rept 5\nnop\n.endr\nret"),
			want: "f: patchable  +0 6\ng: patchable  +4 5\nh: patchable  +0 6\nfour: none no-site +0 0\n" +
				"aligned: none no-site +0 0\n" +
				"f.cold: none cold-part +0 0\nframe: none cold-part +0 0",
		},
		{
			name: "functions with a contract of their own",
			text: start + fn("sigsetjmp", "call __fentry__\nret") + fn("vfork", "call __fentry__\nret") +
				fn("__restore_rt", "call __fentry__\nret") + fentryStub,
			want: "sigsetjmp: fentry-call returns-twice +0 5\nvfork: fentry-call returns-twice +0 5\n" +
				"__restore_rt: fentry-call signal-return +0 5",
		},
		{
			name: "code that is patched already",
			text: start + fn("f", "jmp thunk\nret") + fn("g", "jmp thunk\nret") + fn("h", "endbr64\njmp thunk\nret") +
				pfe("f") + mcountLoc("g") +
				".section .fentry.text,\"ax\"\n" + fn("thunk", "call __fentry__\nret") + ".text\n" + fentryStub,
			want: "f: patchable already-patched +0 0\ng: nop-mcount already-patched +0 0\nh: none already-patched +0 0\n" +
				"thunk: fentry-call fentry-runtime +0 5",
		},
		{
			name: "cold parts and data",
			text: start + fn("f.cold", "ret") + fn("f.cold.3", "ret") + fn("f.cold_war", "ret") +
				".data\n.globl d\n.type d,@function\nd: .quad 0\n.size d,8\n.text\n",
			want: "f.cold: none cold-part +0 0\nf.cold.3: none cold-part +0 0\nf.cold_war: none no-site +0 0\n" +
				"d: none not-executable +0 0",
		},
		{
			name: "names of one address",
			text: start + ".globl _b,b2,a_weak\n.weak a_weak\n.type _b,@function\n.type b2,@function\n" +
				".type a_weak,@function\n.type a_local,@function\n" +
				"_b:\nb2:\na_weak:\na_local: call __fentry__\nret\n.size b2,6\n" + fentryStub,
			want: "b2: fentry-call  +0 5",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"-static"}
			if tt.args != "" {
				args = strings.Fields(tt.args)
			}
			checkEntries(t, asm(t, ".text\n"+tt.text, args...), tt.want)
		})
	}
}

// checkEntries compares the sites of the functions named in want.
func checkEntries(t *testing.T, img, text string) {
	t.Helper()
	names := make(map[string]bool)
	want := strings.Split(text, "\n")
	for _, w := range want {
		name, _, _ := strings.Cut(w, ":")
		names[name] = true
	}
	var got []string
	for _, s := range find(t, img) {
		name := s.Name
		if name == "" && s.Kind != KindNone {
			name = "d"
		}
		if names[name] {
			got = append(got, fmt.Sprintf("%s: %v %s +%d %d", name, s.Kind, s.Reason, s.Addr-s.Func, s.Len))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestWithoutTables looks at images that neither symbols nor unwind tables describe.
func TestWithoutTables(t *testing.T) {
	body := ".globl _start\n_start: ud2\n" +
		"call __fentry__\nret\n" + // function 1, directly behind the other
		".p2align 4\nendbr64\ncall __fentry__\ncall _start\n" + // 2, ends in a call that does not return
		".p2align 4\npush %r10\ncall __fentry__\npop %r10\nret\n" + // 3
		"push %rbp\nmov %rsp,%rbp\npush %rbx\ncall _mcount\npop %rbx\npop %rbp\nret\n" + // 4
		"mov $1,%eax\ncall __fentry__\nret\n" // not at an entry
	text := ".text\n" + body + fentryStub + ".globl _mcount\n.hidden _mcount\n.type _mcount,@function\n_mcount: nop\n" +
		"ret\n.size _mcount,.-_mcount\n"
	img := asm(t, text, "-static")
	var got []string
	for _, s := range find(t, img) {
		if s.Kind != KindNone {
			got = append(got, fmt.Sprintf("%#x+%d %d %v %s", s.Func&0xfff, s.Addr-s.Func, s.Len, s.Kind, s.Reason))
		}
	}
	want := []string{"0x2+0 5 fentry-call ", "0x10+4 5 fentry-call ", "0x20+0 9 fentry-call ", "0x2a+5 5 mcount-call ",
		"0x3c+0 5 fentry-call unknown-entry"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// stripHeaders strips an image, and takes its section headers away.
func stripHeaders(t *testing.T, strip, img string) {
	t.Helper()
	run(t, strip, img)
	b, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(b[40:], 0) // e_shoff
	binary.LittleEndian.PutUint32(b[60:], 0) // e_shnum, e_shstrndx
	if err := runfile.WriteFile(img, b); err != nil {
		t.Fatal(err)
	}
}

// TestNoSectionHeaders takes the section headers away: what the loader needs is enough.
func TestNoSectionHeaders(t *testing.T) {
	testtool.Need(t, "gcc", "strip")
	for _, flags := range []string{"-pg -mfentry -fPIE -pie", "-pg -fno-pie -no-pie",
		"-pg -mfentry -fPIC -shared -DSHARED"} {
		dir := t.TempDir()
		img := filepath.Join(dir, "a.out")
		run(t, "gcc", append(strings.Fields("-O2 -w "+flags), "-o", img, filepath.Join("testdata", "src", "basic.c"))...)
		want := find(t, img)
		stripHeaders(t, "strip", img)
		got := make(map[uint64]Site)
		for _, s := range find(t, img) {
			if s.Kind != KindNone {
				got[s.Addr] = s
			}
		}
		n := 0
		for _, s := range want {
			if s.Kind == KindNone {
				continue
			}
			n++
			if g, ok := got[s.Addr]; !ok || g.Func != s.Func || g.Len != s.Len || g.Reason != s.Reason {
				t.Errorf("%s: %s: got %+v, want %+v", flags, s.Name, g, s)
			}
			delete(got, s.Addr)
		}
		if n < 10 || len(got) != 0 {
			t.Errorf("%s: %d sites, and %d more without section headers", flags, n, len(got))
		}
	}
}

// TestUnnamedStubs: where section headers are stripped, linkers' stubs are no functions: what they jump to can return twice.
func TestUnnamedStubs(t *testing.T) {
	testtool.Need(t, "gcc", "aarch64-linux-gnu-gcc", "strip", "aarch64-linux-gnu-strip")
	const code = `
#include <setjmp.h>
#include <stdlib.h>
static jmp_buf env;
__attribute__((noinline)) void leaves(int n) { if (n > 2) abort(); longjmp(env, n + 1); }
int main(int argc, char **argv) { int n = setjmp(env); if (n < 2) leaves(n); return n; }
`
	dir := t.TempDir()
	source, img := filepath.Join(dir, "jumps.c"), filepath.Join(dir, "jumps")
	if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cc := range []string{"gcc", "aarch64-linux-gnu-gcc"} {
		run(t, cc, "-o", img, source, "-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-Wl,--no-eh-frame-hdr")
		stubs := map[uint64]bool{}
		for _, s := range findWith(t, img, Options{LibraryCalls: true}) {
			if s.Kind == KindLibCall {
				stubs[s.Func] = true
			}
		}
		stripHeaders(t, strings.TrimSuffix(cc, "gcc")+"strip", img)
		for _, s := range findWith(t, img, Options{}) {
			if stubs[s.Func] {
				t.Errorf("%s: the stub at %#x is taken for a function: %+v", cc, s.Func, s)
			}
		}
		if len(stubs) < 3 {
			t.Errorf("%s: %d stubs", cc, len(stubs))
		}
	}
}

// TestDroppedTable links two C++ objects with a function in common: GNU ld drops all of the second object's table.
func TestDroppedTable(t *testing.T) {
	testtool.Need(t, "g++", "strip")
	dir := t.TempDir()
	img := filepath.Join(dir, "a.out")
	args := []string{"-O2", "-fpatchable-function-entry=5", "-fcf-protection", "-o", img}
	for i, text := range []string{"int first(int x) { return shared(x); } int main() { return first(1); }",
		"int second(int x) { return shared(x) + 1; }"} {
		src := filepath.Join(dir, fmt.Sprintf("%d.cc", i))
		text = "__attribute__((noinline)) inline int shared(int x) { return x * 3; }\n" + text
		if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		args = append(args, src)
	}
	run(t, "g++", args...)
	sites := find(t, img)
	names := byName(sites)
	listed := 0
	for _, fn := range []string{"main", "_Z5firsti", "_Z6secondi", "_Z6sharedi"} {
		s := names[fn]
		if s.Kind != KindPatchable || !s.Traceable() || s.Len != 5 || s.Addr != s.Func+4 {
			t.Errorf("%s: %+v", fn, s)
		}
		if s.Source == SourcePatchable {
			listed++
		}
	}
	t.Logf("%d of 4 are listed", listed)
	checkStripped(t, onAMD64, img, sites)
}

// TestLinkers takes other linkers, libraries and ways to call what is imported.
func TestLinkers(t *testing.T) {
	tests := []struct {
		tools, compile, link string
		kind                 Kind
	}{
		{"clang ld.lld", "-pg -mfentry -fPIE", "-pg -pie -fuse-ld=lld", KindFentryCall},
		{"clang ld.lld", "-pg -fno-pie", "-pg -no-pie -fuse-ld=lld -Wl,-z,retpolineplt", KindMcountCall},
		{"clang ld.lld", "-pg -fPIE", "-pg -pie -fuse-ld=lld -Wl,-z,retpolineplt -Wl,-z,now", KindMcountCall},
		{"clang ld.lld", "-fpatchable-function-entry=5 -fPIE", "-pie -fuse-ld=lld -Wl,--pack-dyn-relocs=relr", KindPatchable},
		{"clang ld.lld", "-fpatchable-function-entry=5 -fPIE", "-pie -fuse-ld=lld -Wl,--apply-dynamic-relocs", KindPatchable},
		{"gcc ld.lld", "-pg -mfentry -fPIE", "-pie -fuse-ld=lld", KindFentryCall},
		{"gcc", "-fpatchable-function-entry=7,2 -fPIE", "-pie -Wl,-z,pack-relative-relocs", KindPatchable},
		{"gcc", "-pg -mfentry -fcf-protection -fno-pie", "-no-pie -Wl,-z,ibtplt", KindFentryCall},
		{"gcc", "-pg -mfentry -fPIE", "-pie -Wl,-z,now -Wl,-z,noseparate-code", KindFentryCall},
		{"gcc", "-pg -mfentry -fno-pie", "-no-pie -Wl,-z,now", KindFentryCall},
		{"gcc", "-pg -mfentry -fPIE -mrecord-mcount", "-pie", KindFentryCall},
		{"gcc", "-pg -mfentry -fPIE -ffunction-sections", "-pie -Wl,--gc-sections", KindFentryCall},
		{"gcc", "-pg -flto -fPIE", "-pg -flto -pie", KindMcountCall},
		{"gcc", "-pg -mfentry -fPIE -g -gz", "-pie", KindFentryCall},
		{"musl-gcc", "-fpatchable-function-entry=5 -fPIE", "-pie", KindPatchable},
		{"musl-gcc", "-fpatchable-function-entry=5 -fno-pie", "-static", KindPatchable},
	}
	for _, tt := range tests {
		t.Run(tt.tools+" "+tt.compile+" "+tt.link, func(t *testing.T) {
			t.Parallel()
			tools := strings.Fields(tt.tools)
			testtool.Need(t, append(tools, "strip")...)
			dir := t.TempDir()
			obj, img := filepath.Join(dir, "a.o"), filepath.Join(dir, "a.out")
			run(t, tools[0], append(strings.Fields("-O2 -w "+tt.compile), "-c", "-o", obj,
				filepath.Join("testdata", "src", "basic.c"))...)
			run(t, tools[0], append(strings.Fields("-w -O2 "+tt.link), "-o", img, obj)...)
			sites := find(t, img)
			names := byName(sites)
			for _, fn := range []string{"leaf", "varargs", "structs", "tailcall", "recursive", "looping", "main"} {
				if s := names[fn]; s.Kind != tt.kind || !s.Traceable() {
					t.Errorf("%s: %v %q", fn, s.Kind, s.Reason)
				}
			}
			if s, ok := names["untraced"]; ok && s.Reason != ReasonNoSite { // link-time optimisation drops it
				t.Errorf("untraced: %v %q", s.Kind, s.Reason)
			}
			checkStripped(t, onAMD64, img, sites)
		})
	}
}
