package inject

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/elfio/internal/elftest"
	"github.com/fentry-dev/fentry/elfio/link"
	"github.com/fentry-dev/fentry/internal/testtool"
)

// spliceCXX throws an exception through code that is injected at "middle", asks injected code from a
// constructor whether it has been initialised, and calls imports through injected code.
const spliceCXX = `
#ifdef __cplusplus
#include <stdexcept>
#define C extern "C"
#else
#define C
#endif
#include <stdio.h>
#include <unistd.h>
// Each site is a 5-byte nop; what follows is what happens when it is left alone.
asm(".text\n"
    ".globl middle\n.type middle,@function\nmiddle:\n.cfi_startproc\n.byte 0x0f,0x1f,0x44,0,0\njmp middle_body\n.cfi_endproc\n.size middle,.-middle\n"
    ".globl probe\n.type probe,@function\nprobe:\n.cfi_startproc\n.byte 0x0f,0x1f,0x44,0,0\nmov $-1,%eax\nret\n.cfi_endproc\n.size probe,.-probe\n"
    ".globl imports\n.type imports,@function\nimports:\n.cfi_startproc\n.byte 0x0f,0x1f,0x44,0,0\nmov $-2,%eax\nret\n.cfi_endproc\n.size imports,.-imports\n");
C int middle(int), probe(void), imports(void), middle_body(int);
C __attribute__((noinline, used)) int middle_body(int n) {
#ifdef __cplusplus
	if (n > 3) throw std::runtime_error("thrown");
#endif
	return n + 1;
}
static int early;
__attribute__((constructor)) static void construct(void) { early = probe(); }
int main(void) {
	int r = middle(1), caught = 1;
#ifdef __cplusplus
	try { r += middle(7); } catch (std::exception &e) { caught = e.what()[0] == 't'; }
#endif
	printf("r %d caught %d early %d now %d imports %d\n", r, caught, early, probe(), imports());
	return 7;
}
`

// spliceAsm is the injected object.
const spliceAsm = `
	.text
	.globl start, thunk, probe_hook, resolver, imports_hook
	.type start, @function
start:	incl starts(%rip)
	jmp orig_entry
	.size start, .-start
	.type thunk, @function
thunk:	.cfi_startproc
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	call middle_body
	incl calls(%rip)
	add $8, %rsp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size thunk, .-thunk
	.type probe_hook, @function
probe_hook:	.cfi_startproc
	mov calls(%rip), %eax		# 0 in a constructor, calls of thunk that returned later
	imul $100, %eax
	mov resolved@GOTPCREL(%rip), %rdx	# becomes lea
	imul $10, (%rdx), %edx
	add %edx, %eax
	add starts(%rip), %eax
	ret
	.cfi_endproc
resolver:	.cfi_startproc
	incl resolved(%rip)
	lea resolver(%rip), %rax
	ret
	.cfi_endproc
imports_hook:	.cfi_startproc
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbx, -16
	xor %ebx, %ebx
	mov known@GOTPCREL(%rip), %rax
	test %rax, %rax
	jz 1f
	inc %ebx
1:	cmpq $0, unknown@GOTPCREL(%rip)
	jz 1f
	add $10, %ebx
1:	cmpq $0, getpagesize@GOTPCREL(%rip)
	jz 1f
	call *getpagesize@GOTPCREL(%rip)
	add %eax, %ebx
	call getpagesize@PLT
	add %eax, %ebx
1:	mov %ebx, %eax
	pop %rbx
	ret
	.cfi_endproc
	.weak getpagesize, known, unknown
	.set known, 0
	.weak write
	.section .rodata
	.long 1, 2, 3
	.bss
	.balign 64
starts:	.long 0
	.globl resolved
resolved:	.long 0
calls:	.long 0
	.globl scratch
	.balign 8
scratch:	.quad 0
	.comm shared, 24, 32
	.section .note.GNU-stack, "", @progbits
`

var spliceFixtures = []struct {
	elftest.Fixture
	dynamic bool // glibc's dynamic linker relocates it
	irel    bool // relocations run before constructors, and can be extended
}{
	{elftest.Fixture{Name: "pie", Tool: "g++", Args: []string{"-pie"}}, true, true},
	{elftest.Fixture{Name: "nopie", Tool: "g++", Args: []string{"-no-pie"}}, true, true},
	{elftest.Fixture{Name: "now-relr", Tool: "g++",
		Args: []string{"-pie", "-Wl,-z,now", "-Wl,-z,pack-relative-relocs"}}, true, true},
	{elftest.Fixture{Name: "stripped", Tool: "g++", Args: []string{"-pie", "-s", "-rdynamic"}}, true, true},
	{elftest.Fixture{Name: "static", Tool: "g++", Args: []string{"-static"}}, false, false},
	{elftest.Fixture{Name: "static-pie", Tool: "g++", Args: []string{"-static-pie"}}, false, true},
	{elftest.Fixture{Name: "gold", Tool: "g++", Args: []string{"-pie", "-fuse-ld=gold"}}, true, true},
	{elftest.Fixture{Name: "lld", Tool: "clang++", Args: []string{"-pie", "-fPIE", "-fuse-ld=lld"}},
		true, true},
	{elftest.Fixture{Name: "lld-nopie", Tool: "clang++", Args: []string{"-no-pie", "-fuse-ld=lld"}},
		true, true},
	{elftest.Fixture{Name: "lld-static", Tool: "clang++", Args: []string{"-static", "-fuse-ld=lld"}},
		false, false},
	{elftest.Fixture{Name: "musl", Tool: "musl-gcc", Args: []string{"-pie", "-fPIE"}}, true,
		false}, // refuses IRELATIVE
	{elftest.Fixture{Name: "musl-static", Tool: "musl-gcc", Args: []string{"-static"}}, false, false},
}

// spliceObject assembles spliceAsm.
func spliceObject(t testing.TB) *elfio.File {
	t.Helper()
	testtool.Need(t, "gcc")
	f, err := elfio.Parse(elftest.Compile(t, "splice.o", ".s", spliceAsm, "gcc", "-c"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// splice injects spliceAsm into a program made from spliceCXX: a full injection with everything this package offers.
func splice(t testing.TB, raw []byte, symbolsFrom *elfio.File, dynamic, irel bool) []byte {
	t.Helper()
	f, err := elfio.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	syms, err := symbolsFrom.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	if syms == nil {
		if syms, err = symbolsFrom.DynamicSymbols(); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]uint64{"orig_entry": f.Header.Entry}
	for _, s := range syms {
		switch s.Name {
		case "middle", "middle_body", "probe", "imports":
			known[s.Name] = s.Value
		}
	}
	if len(known) != 5 {
		t.Fatalf("symbols missing: %v", known)
	}
	obj := spliceObject(t)
	size, align, err := link.WritableSize(obj)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLayout(f, Memory{RW: size, RWAlign: align})
	if err != nil {
		t.Fatal(err)
	}
	o := link.Options{RX: l.RX, RW: l.RW, Symbols: known}
	if dynamic {
		o.Import = func(string) bool { return true }
	}
	linked, err := link.Object(obj, o)
	if err != nil {
		t.Fatal(err)
	}
	if linked.RWSize > size {
		t.Fatalf("%d bytes of zeroed memory, link.WritableSize promised %d", linked.RWSize, size)
	}
	in := Injection{Layout: l, RX: linked.RX, Entry: linked.Symbols["start"]}
	for _, s := range linked.Sections {
		in.Sections = append(in.Sections, Section{Name: ".fentry" + s.Name, Type: s.Type, Flags: s.Flags, Addr: s.Addr,
			Size: s.Size, Align: s.Align})
	}
	for _, s := range linked.Defined {
		in.Symbols = append(in.Symbols, Symbol{Name: "fentry:" + s.Name, Value: s.Value, Size: s.Size,
			Info: elf.ST_INFO(elf.STB_LOCAL, elf.ST_TYPE(s.Info))})
	}
	room := func(align int) uint64 {
		for len(in.RX)%align != 0 {
			in.RX = append(in.RX, 0)
		}
		return l.RX + uint64(len(in.RX))
	}
	var relocs []DynReloc
	for _, i := range linked.Imports {
		relocs = append(relocs, DynReloc{Off: i.Slot, Type: uint32(elf.R_X86_64_GLOB_DAT), Symbol: i.Name})
	}
	if irel {
		relocs = append(relocs, DynReloc{Off: linked.Symbols["scratch"], Type: uint32(elf.R_X86_64_IRELATIVE),
			Irelative: true, Addend: int64(linked.Symbols["resolver"])})
	}
	if relocs != nil {
		x, err := ExtendDynamic(f, room(8), relocs)
		if err != nil {
			t.Fatal(err)
		}
		in.RX = append(in.RX, x.Data...)
		in.Edits = append(in.Edits, x.Edits...)
		in.Moved = append(in.Moved, x.Moved...)
	}
	if l.EhFrame {
		at := room(4)
		hdr, err := ehframe.MergeHeader(f, at, linked.Frames.Entries())
		if err != nil {
			t.Fatal(err)
		}
		in.RX = append(in.RX, hdr...)
		in.EhFrameHdr = [2]uint64{at, uint64(len(hdr))}
		// Naming the section is allowed, and makes no difference: it is .eh_frame_hdr.
		in.Sections = append(in.Sections, Section{Name: ".fentry.eh_frame_hdr", Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC,
			Addr: at, Size: uint64(len(hdr)), Align: 4})
	}
	// gdb reads .eh_frame and .debug_frame by section, not .eh_frame_hdr.
	var moved ehframe.Moved
	if err := moved.Append(obj, linked.EhFrame.Addr, 0, linked.Frames.All(), ehframe.Rules{}); err != nil {
		t.Fatal(err)
	}
	in.Sections = append(in.Sections, Section{Name: ".debug_frame", Type: elf.SHT_PROGBITS, Data: moved.DebugFrame,
		Align: 8})
	for site, hook := range map[string]string{"middle": "thunk", "probe": "probe_hook", "imports": "imports_hook"} {
		off, ok := f.Offset(known[site])
		if !ok {
			t.Fatalf("%s is not in the file", site)
		}
		jmp := []byte{0xe9, 0, 0, 0, 0}
		binary.LittleEndian.PutUint32(jmp[1:], uint32(linked.Symbols[hook]-(known[site]+5)))
		in.Edits = append(in.Edits, elfio.RawEdit{Off: off, New: jmp})
	}
	out, err := injected(f, in)
	if err != nil {
		t.Fatal(err)
	}
	var streamed bytes.Buffer
	plan, err := Into(f, in)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.WriteTo(&streamed); err != nil || !bytes.Equal(streamed.Bytes(), out) {
		t.Errorf("WriteTo differs from Inject (%v)", err)
	}
	back, err := Undo(out)
	if err != nil || !bytes.Equal(back, raw) {
		t.Errorf("Uninject does not give the original (%v)", err)
	}
	return out
}

func TestInjectRuntime(t *testing.T) {
	for _, x := range spliceFixtures {
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			testtool.Need(t, x.Tool)
			args := append([]string{"-O1", "-w"}, x.Args...)
			if strings.Contains(x.Tool, "clang") {
				args = append(args, "-Wno-unused-command-line-argument")
			}
			suffix := ".cc"
			if x.Tool == "musl-gcc" { // has no C++ library: without the exception
				suffix = ".c"
			}
			raw := elftest.Compile(t, "splice-"+x.Name, suffix, spliceCXX, x.Tool, args...)
			expect := func(raw []byte, what, want string, wrapper ...string) string {
				out, code := elftest.Run(append(wrapper, elftest.WriteExec(t, raw)))
				if code != 7 || out != want {
					return what + ": " + out
				}
				return ""
			}
			if msg := expect(raw, "untouched", "r 2 caught 1 early -1 now -1 imports -2\n"); msg != "" {
				t.Fatal(msg)
			}
			f, err := elfio.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			out := splice(t, raw, f, x.dynamic, x.irel)
			// early: 10 for each run of the resolver and 1 for start, both before the program's constructors; now: 100 for
			// each call of the thunk that returned; imports: known is absolute 0, unknown is found nowhere, getpagesize is
			// called twice.
			if x.dynamic && f.Header.Type == elf.ET_EXEC && testing.Short() {
				x.dynamic = false
			}
			want := "r 2 caught 1 early 1 now 101 imports 0\n"
			switch {
			case x.dynamic && !x.irel:
				want = "r 2 caught 1 early 1 now 101 imports 8192\n"
			case x.dynamic:
				want = "r 2 caught 1 early 11 now 111 imports 8192\n"
			case x.irel:
				want = "r 2 caught 1 early 11 now 111 imports 0\n"
			}
			if msg := expect(out, "injected", want); msg != "" {
				t.Fatal(msg)
			}
			if testtool.Have(t, "qemu-x86_64") {
				if msg := expect(out, "qemu", want, "qemu-x86_64"); msg != "" {
					t.Error(msg)
				}
			}
			verify(t, out)
			lint(t, raw, out)
			for _, tool := range tools {
				t.Run(tool.name, func(t *testing.T) {
					testtool.Need(t, tool.command[0])
					if tool.name == "patchelf" && x.dynamic && f.Header.Type == elf.ET_EXEC {
						t.Skip("patchelf 0.14 takes an executable at fixed addresses apart where .dynstr is not in front of .text")
					}
					was, msg := elftest.TryTransform(t, raw, tool.command...)
					if msg == "" {
						msg = expect(was, "untouched", "r 2 caught 1 early -1 now -1 imports -2\n")
					}
					if msg != "" {
						t.Skipf("does so to the untouched program too: %s", msg)
					}
					if msg := expect(elftest.Transform(t, out, tool.command...), tool.name, want); msg != "" {
						t.Error(msg)
					}
				})
			}
		})
	}
}

func TestLinkTooFar(t *testing.T) {
	o := link.Options{RX: 0x1000, RW: 1 << 40, Symbols: map[string]uint64{"orig_entry": 0, "middle_body": 0}}
	if _, err := link.Object(spliceObject(t), o); err == nil || !strings.Contains(err.Error(), "2 GiB") {
		t.Errorf("memory a terabyte away: %v", err)
	}
}
