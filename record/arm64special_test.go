package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// afn is an assembler function with a size, for AArch64.
func afn(name, body string) string {
	return fmt.Sprintf(".globl %[1]s\n.type %[1]s,%%function\n%[1]s:\n.cfi_startproc\n%[2]s\n.cfi_endproc\n"+
		".size %[1]s,.-%[1]s\n", name, body)
}

// TestARM64Entries looks at shapes no compiler makes, or rarely.
func TestARM64Entries(t *testing.T) {
	start := afn("_start", "udf #0")
	mcount := afn("_mcount", "ret")
	const record = "stp x29, x30, [sp, #-32]!\nmov x29, sp\n"
	for _, tt := range []struct{ name, text, want string }{
		{
			name: "landing pads and nops",
			text: start + afn("f", "bti c\nnop\nnop\nret") + afn("g", "nop\nnop\nnop\nret") + pfe("f+4") + pfe("g"),
			want: "f: patchable  +4 8\ng: patchable  +0 12",
		},
		{
			name: "one nop is room enough where a table lists it",
			text: start + afn("f", "nop\nret") + afn("g", "nop\nret") + pfe("f"),
			want: "f: patchable  +0 4\ng: none no-site +0 0",
		},
		{
			name: "branch into the nops, and behind them",
			text: start + afn("f", "nop\n1: nop\ncbnz x0, 1b\nret") + afn("g", "nop\nnop\n1: tbz x0, #3, 1b\nret") +
				afn("h", "1: nop\nnop\nb.eq 1b\nret") + pfe("f") + pfe("g") + pfe("h"),
			want: "f: patchable  +0 4\ng: patchable  +0 8\nh: patchable  +0 8",
		},
		{
			name: "listed, but no nops; listed between instructions",
			text: start + afn("f", "mov x0, x1\nret") + afn("g", "nop\nnop\nret") + pfe("f") + pfe("g+2"),
			want: "f: patchable unexpected-bytes +0 0\nd: patchable unexpected-bytes +0 0\ng: patchable  +0 8",
		},
		{
			name: "all nops before the function",
			text: start + "f2: nop\nnop\n" + afn("f", "mov x0, x1\nret") + pfe("f2"),
			want: "f: patchable short-site +0 0",
		},
		{
			name: "patched already, directly and by a veneer",
			text: start + afn("f", "b thunk\nnop\nret") + afn("g", "bti c\nb 1f\nnop\nret") +
				"1: adrp x16, thunk\nadd x16, x16, #:lo12:thunk\nbr x16\n" +
				pfe("f") + ".section .fentry.text,\"ax\"\n" + afn("thunk", "nop\nnop\nret") + ".text\n",
			want: "f: patchable already-patched +0 0\ng: none already-patched +0 0\nthunk: patchable fentry-runtime +0 8",
		},
		{
			name: "shadow call stack",
			text: start + afn("leaf", "nop\nnop\nret") + afn("f", "nop\nnop\nstr x30, [x18], #8\nret") +
				afn("g", "nop\nnop\nbti j\nldr x30, [x18, #-8]!\nret") + pfe("leaf") + pfe("f") + pfe("g"),
			want: "leaf: patchable  +0 8\nf: patchable shadow-call-stack +0 8\ng: patchable  +0 8",
		},
		{
			name: "frames",
			text: start + mcount +
				afn("pair", record+"bl _mcount\nret") +
				afn("bottom", "sub sp, sp, #48\nstp x29, x30, [sp, #32]\nadd x29, sp, #32\nbl _mcount\nret") +
				afn("large", "mov x12, #0x13b0\nsub sp, sp, x12\nstp x29, x30, [sp]\nmov x29, sp\nbl _mcount\nret") +
				afn("mask", "mov x12, #0xfff0\nsub sp, sp, x12\nstp x29, x30, [sp]\nmov x29, sp\nbl _mcount\nret") +
				afn("halves", "mov x12, #0x10\nmovk x12, #2, lsl #16\nsub sp, sp, x12\nstp x29, x30, [sp]\nmov x29, sp\n"+
					"bl _mcount\nret") +
				afn("shifted", "sub sp, sp, #3, lsl #12\nsub sp, sp, #16\nstp x29, x30, [sp]\nmov x29, sp\nbl _mcount\nret") +
				afn("probed", "sub x9, sp, #0x40, lsl #12\n1: sub sp, sp, #0x10, lsl #12\nstr xzr, [sp, #1024]\ncmp sp, x9\n"+
					"b.ne 1b\n"+record+"bl _mcount\nret") +
				afn("vectors", "stp d8, d9, [sp, #-32]!\nstr d10, [sp, #-16]!\n"+record+"bl _mcount\nret") +
				afn("single", "sub sp, sp, #32\nstr x29, [sp, #16]\nstr x30, [sp, #24]\nadd x29, sp, #16\nbl _mcount\nret") +
				afn("vla", record+"sub sp, sp, x0\nbl _mcount\nret") +
				afn("aligned", record+"sub x9, sp, #64\nand sp, x9, #-64\nbl _mcount\nret") +
				afn("condition", record+"cbz x0, 1f\nstr x0, [sp, #16]\n1: bl _mcount\nret") +
				afn("late", "cbz x0, 1f\n1: "+record+"bl _mcount\nret") +
				afn("none", "sub sp, sp, #16\nstr x30, [sp]\nbl _mcount\nret") +
				afn("lost", record+"mov x29, x0\nbl _mcount\nret") +
				afn("loaded", record+"ldp x29, x1, [x0]\nbl _mcount\nret") +
				afn("unsaved", "sub sp, sp, #32\nmov x29, sp\nbl _mcount\nret") +
				afn("elsewhere", "sub sp, sp, #32\nstp x29, x30, [sp, #16]\nmov x29, sp\nbl _mcount\nret") +
				afn("uneven", "sub sp, sp, #40\nstp x29, x30, [sp]\nmov x29, sp\nbl _mcount\nret") +
				afn("overwritten", "mov x30, x1\n"+record+"bl _mcount\nret") +
				afn("behind", record+"b 1f\n1: bl _mcount\nret") +
				afn("signed", "paciasp\n"+record+"bl _mcount\nret") +
				afn("signed_b", "pacibsp\n"+record+"bl _mcount\nret"),
			want: `pair: mcount-call  +8 4
bottom: mcount-call  +12 4
large: mcount-call  +16 4
mask: mcount-call  +16 4
halves: mcount-call  +20 4
shifted: mcount-call  +16 4
probed: mcount-call  +28 4
vectors: mcount-call  +16 4
single: mcount-call  +16 4
vla: mcount-call  +12 4
aligned: mcount-call  +16 4
condition: mcount-call  +16 4
late: mcount-call no-frame-pointer +12 4
none: mcount-call no-frame-pointer +8 4
lost: mcount-call no-frame-pointer +12 4
loaded: mcount-call no-frame-pointer +12 4
unsaved: mcount-call no-frame-pointer +8 4
elsewhere: mcount-call no-frame-pointer +12 4
uneven: mcount-call no-frame-pointer +12 4
overwritten: mcount-call no-frame-pointer +12 4
behind: mcount-call not-at-entry +12 4
signed: mcount-call  +12 4
signed_b: mcount-call  +12 4`,
		},
		{
			name: "calls through registers and veneers",
			text: start + mcount +
				afn("direct", record+"adrp x16, _mcount\nadd x16, x16, #:lo12:_mcount\nblr x16\nret") +
				afn("word", record+"adrp x2, slot\nmov x0, x30\nldr x2, [x2, #:lo12:slot]\nblr x2\nret") +
				afn("veneer", record+"bl 1f\nret") + "1: adrp x16, _mcount\nadd x16, x16, #:lo12:_mcount\nbr x16\n" +
				afn("other", record+"adrp x2, start\nadd x2, x2, #:lo12:start\nblr x2\nret") +
				afn("overwritten", record+"adrp x2, slot\nldr x2, [x2, #:lo12:slot]\nmov x2, x0\nblr x2\nret") +
				afn("called", record+"adrp x2, slot\nldr x2, [x2, #:lo12:slot]\nbl start\nblr x2\nret") +
				".globl start\nstart: ret\n.section .got,\"aw\"\n.balign 8\nslot: .quad _mcount\n.text\n",
			want: "direct: mcount-call  +16 4\nword: mcount-call  +20 4\nveneer: mcount-call  +8 4\n" +
				"other: none no-site +0 0\noverwritten: none no-site +0 0\ncalled: none no-site +0 0",
		},
		{
			name: "a program's own function that is called mcount",
			text: start + afn("mcount", "add x0, x0, #1\nret") + afn("f", record+"bl mcount\nret"),
			want: "f: none no-site +0 0",
		},
		{
			name: "a table of calls, and of nops in their place",
			text: start + mcount + afn("f", record+"bl _mcount\nret") + afn("g", record+"nop\nret") + afn("h", "nop\nret") +
				afn("i", record+"bl f\nret") +
				mcountLoc("f+8") + mcountLoc("g+8") + mcountLoc("h") + mcountLoc("i+8"),
			want: "f: mcount-call  +8 4\ng: nop-mcount  +8 4\nh: nop-mcount  +0 4\ni: none other-callee +8 4",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkEntries(t, onARM64.asm(t, ".text\n"+tt.text, "-static"), tt.want)
		})
	}
}

// TestARM64Starts looks at functions that only unwind entries know of, which begin behind the nops.
func TestARM64Starts(t *testing.T) {
	// A function as gcc 12 makes it: nops, then .cfi_startproc.
	local := func(label, lead, body string) string {
		return label + ":\n" + lead + "\n.cfi_startproc\n" + body + "\n.cfi_endproc\n"
	}
	start := ".globl _start\n.type _start,%function\n_start:\n.cfi_startproc\nbl 1f\nbl 2f+8\nb 5f\n.cfi_endproc\n" +
		".size _start,.-_start\n"
	img := onARM64.asm(t, ".text\n"+start+
		local("1", "nop\nnop", "mov x0, #1\nret")+ // called at the first nop
		local("2", "nop\nnop\nnop\nnop", "mov x0, #2\nret")+ // two nops before it, by its caller
		local("3", "bti c\nnop\nnop", "mov x0, #3\nret")+ // the landing pad says it
		local("4", "nop\nnop", "mov x0, #4\nret")+ // like most others
		local("5", "nop\nnop", "mov x0, #5\nret")+ // reached by a tail call
		local("6", "nop\nnop", "mov x0, #6\nret")+ // not listed and not called: padding
		local("7", "", "mov x0, #7\nret")+
		pfe("1b")+pfe("2b")+pfe("3b+4")+pfe("4b")+pfe("5b"), "-static")
	run(t, "aarch64-linux-gnu-strip", img)
	var got []string
	base := uint64(0)
	for _, s := range find(t, img) {
		if base == 0 {
			base = s.Func
		}
		got = append(got, fmt.Sprintf("%d %d %v +%d %d", s.Func-base, s.Size, s.Kind, s.Addr-s.Func, s.Len))
	}
	want := []string{
		"0 12 none +0 0",
		"12 16 patchable +0 8",
		"36 16 patchable +0 8",
		"52 20 patchable +4 8",
		"72 16 patchable +0 8",
		"88 16 patchable +0 8",
		"112 8 none +0 0",
		"120 8 none +0 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestARM64DroppedTable links two C++ objects with a function in common: GNU ld drops all of the second object's table.
func TestARM64DroppedTable(t *testing.T) {
	testtool.Need(t, "aarch64-linux-gnu-g++", "aarch64-linux-gnu-strip")
	dir := t.TempDir()
	img := filepath.Join(dir, "a.out")
	args := []string{"-O2", "-fpatchable-function-entry=2", "-o", img}
	for i, text := range []string{"int first(int x) { return shared(x); } int main() { return first(1); }",
		"int second(int x) { return shared(x) + 1; }"} {
		src := filepath.Join(dir, fmt.Sprintf("%d.cc", i))
		text = "__attribute__((noinline)) inline int shared(int x) { return x * 3; }\n" + text
		if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		args = append(args, src)
	}
	run(t, "aarch64-linux-gnu-g++", args...)
	names := byName(find(t, img))
	for _, fn := range []string{"main", "_Z5firsti", "_Z6secondi", "_Z6sharedi"} {
		if s := names[fn]; s.Kind != KindPatchable || !s.Traceable() || s.Len != 8 || s.Addr != s.Func {
			t.Errorf("%s: %+v", fn, s)
		}
	}
}
