package record

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPlainARM64 is TestPlain for AArch64, where one instruction is displaced: each rule has a function that it refuses,
// and most have one beside it that is no different otherwise and is not refused.
func TestPlainARM64(t *testing.T) {
	start := afn("_start", "udf #0") + ".p2align 4\n"
	// stripped is a function that only unwind tables tell of.
	stripped := func(body string) string { return ".p2align 4\n.cfi_startproc\n" + body + "\n.cfi_endproc\n" }
	// bare is a function without unwind information.
	bare := func(name, body string) string {
		return fmt.Sprintf(".type %[1]s,%%function\n%[1]s:\n%[2]s\n.size %[1]s,.-%[1]s\n", name, body)
	}
	const (
		push    = "stp x29, x30, [sp, #-32]!\n"
		pop     = "ldp x29, x30, [sp], #32\n"
		frame   = "stp x29, x30, [sp, #-32]!\n.cfi_def_cfa_offset 32\n.cfi_offset 29, -32\n.cfi_offset 30, -24\n"
		unframe = "ldp x29, x30, [sp], #32\n.cfi_restore 30\n.cfi_restore 29\n.cfi_def_cfa_offset 0\n"
		// As clang has it without -fasynchronous-unwind-tables: rows from the end of the prologue on.
		late  = "sub sp, sp, #48\nstp x29, x30, [sp, #32]\nadd x29, sp, #32\n.cfi_def_cfa w29, 16\n.cfi_offset w30, -8\n.cfi_offset w29, -16\n"
		early = "ldp x29, x30, [sp, #32]\nadd sp, sp, #48\n"
		other = "mov x1, x2\nret"
		bti   = ".section .note.gnu.property,\"a\"\n.p2align 3\n.word 4, 16, 5\n.asciz \"GNU\"\n.word 0xc0000000, 4, 1, 0\n.text\n"
		pads  = ".cfi_window_save\n" // negate_ra_state
	)
	tests := []struct {
		name, text string
		args       string
		want       string // "function: reason +offset return address", one a line
	}{
		{name: "one instruction, however short the function", text: afn("f", other) + afn("g", "ret") + afn("h", "b f"),
			want: "f:  +0 lr\ng:  +0 lr\nh:  +0 lr"},
		{name: "a landing pad stays", text: afn("f", "bti c\n"+other) + afn("g", "bti c\nbti j\nret") + afn("h", "bti c"),
			want: "f:  +4 lr\ng: jump-into-site +0 lr\nh: short-function +0 lr"},
		{name: "the entry point", want: "_start: entry-point +0 lr"},
		{name: "nops that a compiler has left, all before the function", text: "f2: nop\nnop\n" + afn("f", other) + pfe("f2"),
			want: "f:  +0 lr"},
		{
			name: "a signed return address, where pages are not guarded and where they are",
			text: afn("f", "paciasp\n"+pads+frame+unframe+"autiasp\n"+pads+"ret"),
			want: "f:  +0 lr",
		},
		{
			name: "in guarded pages",
			text: afn("f", "paciasp\n"+pads+frame+unframe+"autiasp\n"+pads+"ret") +
				afn("g", "bti c\npaciasp\n"+pads+frame+unframe+"autiasp\n"+pads+"ret") +
				afn("h", "paciasp\n"+frame+unframe+"autiasp\nret") + bti,
			want: "f:  +4 lr-signed\ng:  +4 lr\nh: unusual-unwind-info +0 lr",
		},
		{
			name: "the return address is read: from x30, saved or not; where it is saved; as one of two",
			text: afn("f", "mov x0, x30\nret") + afn("g", frame+"mov x0, x30\nbl f\n"+unframe+"ret") +
				afn("h", frame+"bl f\nldr x0, [sp, #8]\n"+unframe+"ret") + afn("i", frame+"mov x29, sp\nbl f\nldp x0, x1, [x29, #8]\n"+unframe+"ret") +
				afn("j", frame+"bl f\nstr x0, [sp, #8]\n"+unframe+"ret") + afn("k", "str x30, [x0]\nret") +
				afn("l", late+"bl f\nldr x0, [x29, #8]\n"+early+"ret") + afn("m", late+"bl f\nldr w0, [sp, #44]\n"+early+"ret"),
			want: "f: reads-return-address +0 lr\ng: reads-return-address +0 lr\nh: reads-return-address +0 lr\n" +
				"i: reads-return-address +0 lr\nj: reads-return-address +0 lr\nk: reads-return-address +0 lr\n" +
				"l: reads-return-address +0 lr\nm: reads-return-address +0 lr",
		},
		{
			name: "it is not: saved and restored, beside it, x30 used for something else, moved as unwinders know",
			text: afn("f", frame+"bl g\nldr x0, [sp, #16]\nldr x1, [sp]\n"+unframe+"ret") +
				afn("g", frame+"bl f\nmov x30, x0\nadd x0, x30, x1\n"+unframe+"b f") +
				afn("h", late+"bl f\nldr x0, [sp, #24]\nmov x30, x0\nldr x0, [x30]\n"+early+"ret") +
				afn("i", "mov x9, x30\n.cfi_register 30, 9\nsub sp, sp, #16\n.cfi_def_cfa_offset 16\nbl f\nadd sp, sp, #16\n.cfi_def_cfa_offset 0\nret x9") +
				afn("j", late+"cbz x0, 1f\nbl f\n"+early+"ret\n1: bl g\nstr x0, [sp, #16]\n"+early+"ret"),
			want: "f:  +0 lr\ng:  +0 lr\nh:  +0 lr\ni:  +0 lr\nj:  +0 lr",
		},
		{
			name: "moved as unwinders know, and what is called has the same stack pointer",
			text: afn("f", "mov x9, x30\n.cfi_register 30, 9\nbl g\nret x9") + afn("g", "mov x9, x30\n.cfi_register 30, 9\nblr x0\nret x9") +
				afn("h", "mov x9, x30\n.cfi_register 30, 9\nmov x0, x1\nret x9"),
			want: "f: reads-return-address +0 lr\ng: reads-return-address +0 lr\nh:  +0 lr",
		},
		{
			name: "a branch leads from where x30 has it to where it is read, ahead and back",
			text: afn("f", frame+"cbz x0, 1f\nbl g\n"+".cfi_remember_state\n"+unframe+"ret\n.cfi_restore_state\n1: mov x0, x30\nbl g\n"+unframe+"ret") +
				afn("g", frame+"b 2f\n1: add x0, x30, x1\nbl f\n"+".cfi_remember_state\n"+unframe+"ret\n.cfi_restore_state\n2: cbnz x0, 1b\nbl f\n"+unframe+"ret"),
			want: "f: reads-return-address +0 lr\ng: reads-return-address +0 lr",
		},
		{
			name: "a jump to where it is read, or what it does returns twice",
			text: afn("f", "mov x0, x30\nret") + afn("g", "mov x1, #0\nb f") + afn("h", "mov x1, #0\nb g") +
				afn("i", "mov x8, #220\nsvc #0\nret") + afn("j", "mov x1, #0\nb i"),
			want: "f: reads-return-address +0 lr\ng: reads-return-address +0 lr\nh: reads-return-address +0 lr\n" +
				"i: returns-twice +0 lr\nj: returns-twice +0 lr",
		},
		{
			name: "a veneer to where it is read",
			text: afn("f", "mov x0, x30\nret") + afn("g", "mov x0, x1\nret") + bare("near", "adrp x16, f\nadd x16, x16, :lo12:f\nbr x16") +
				bare("far", "ldr x16, 1f\nbr x16\n1: .quad f") + bare("other", "adrp x16, g\nadd x16, x16, :lo12:g\nbr x16"),
			args: "-static",
			want: "f: reads-return-address +0 lr\ng:  +0 lr\nnear: reads-return-address +0 lr\nfar: reads-return-address +0 lr\nother:  +0 lr",
		},
		{
			name: "what veneers may change comes in, goes out",
			text: afn("f", "mov x0, x16\nret") + afn("g", "mov w17, #1\nadd x0, x0, x17\nret") + afn("h", "mov x0, x1\ncset x0, eq\nret") +
				afn("i", "cmp x0, x1\ncset x0, eq\nret") + afn("out", "cmp x0, #1\nret") +
				afn("j", frame+"bl out\nb.eq 1f\n1: "+unframe+"ret") + afn("k", frame+"bl i\n1: b.eq 2f\ncmp x0, #2\nb 1b\n2: "+unframe+"ret"),
			want: "f: flags-live +0 lr\ng:  +0 lr\nh: flags-live +0 lr\ni:  +0 lr\nj:  +0 lr\nk:  +0 lr\nout: flags-live +0 lr",
		},
		{
			name: "it comes in, and is used behind a jump, on one of two ways, in a linker's veneer and where that goes back to; after a call it is a result",
			text: afn("f", "mov x2, #1\nb 1f\nnop\n1: add x0, x17, x2\nret") + afn("g", "cbz x0, 1f\nret\n1: ldr x0, [x16]\nret") +
				afn("h", "cbz x0, 1f\nmov x16, #1\nret\n1: mov x16, #2\nret") + afn("i", frame+"cbz x0, 1f\n1: bl h\nmov x0, x16\n"+unframe+"ret") +
				afn("leaf", "mov x16, #40\nb veneer\nback: add x0, x0, x16\nret") + bare("veneer", "ldr x3, [x3]\nb back") + afn("j", "mov x0, x1\nb f"),
			want: "f: flags-live +0 lr\ng: flags-live +0 lr\nh: flags-live +0 lr\ni:  +0 lr\nleaf:  +0 lr\nveneer: flags-live +0 lr\nj: flags-live +0 lr",
		},
		{
			name: "a loop to the first instruction: as it was called, with a frame",
			text: afn("f", "sub x0, x0, #1\ncbnz x0, f\nret") + afn("g", frame+"cbnz x0, g\n"+unframe+"ret"),
			want: "f:  +0 lr\ng: loop-at-entry +0 lr",
		},
		{
			name: "calls: another function, the next instruction; exclusive accesses; system calls and traps",
			text: afn("f", "bl g\nudf #0") + afn("g", "bl 1f\n1: mov x0, x1\nret") + afn("h", "ldxr x1, [x0]\nstxr w2, x1, [x0]\nret") +
				afn("i", "svc #0\nret") + afn("j", "brk #1") + afn("k", "mov x8, #220\nsvc #0\nret") + afn("l", "mov x8, #221\nsvc #0\nret"),
			want: "f:  +0 lr\ng: call-at-entry +0 lr\nh: exclusive-at-entry +0 lr\ni: system-call-at-entry +0 lr\nj: system-call-at-entry +0 lr\n" +
				"k: returns-twice +0 lr\nl:  +0 lr",
		},
		{
			name: "a word that looks like an address in the middle of the instruction",
			text: afn("f", other) + ".data\n.balign 8\n.quad f+1, f+4\n.text\n",
			want: "f:  +0 lr",
		},
		{
			name: "unwind information: none, which is followed instead; of a signal frame, of a frame that is there",
			text: bare("f", other) + afn("g", ".cfi_signal_frame\n"+other) +
				afn("h", ".cfi_def_cfa_offset 16\n"+other) + afn("i", ".cfi_undefined 30\n"+other),
			want: "f:  +0 lr\ng: unusual-unwind-info +0 lr\nh: cold-part +0 lr\ni: unusual-unwind-info +0 lr",
		},
		{
			name: "no unwind information: the stack not as it came, a return address that is read, not restored, one that is saved by turns",
			text: bare("f", "mov x0, x1\nsub sp, sp, #16\nret") + bare("g", "mov x0, x30\nret") +
				bare("h", "mov x0, x1\n"+push+"bl f\nadd sp, sp, #32\nret") +
				bare("i", "cbz x0, 1f\n"+push+"bl f\n"+pop+"1: ret") + bare("j", "mov x0, x1\n"+push+"ldr x0, [sp, #8]\n"+pop+"ret"),
			want: "f: no-unwind-info +0 lr\ng: reads-return-address +0 lr\nh: no-unwind-info +0 lr\ni:  +0 lr\nj: reads-return-address +0 lr",
		},
		{
			name: "no unwind information: parts, jumped to with a frame, by functions with and without; a tail call",
			text: bare("f", "mov x0, x1\n"+push+"b f2") + bare("f2", "mov x0, x1\n"+pop+"ret") +
				afn("g", frame+"b g2") + bare("g2", "mov x0, x1\nret") + bare("h", "mov x0, x1\nb h2") + bare("h2", other),
			want: "f:  +0 lr\nf2: no-unwind-info +0 lr\ng:  +0 lr\ng2: no-unwind-info +0 lr\nh:  +0 lr\nh2:  +0 lr",
		},
		{
			name: "nothing lists a function: one that is called, by another such one, too, also from a switch; one whose address is taken",
			text: afn("f", frame+"bl unlisted1\nadr x0, unlisted3\n"+unframe+"ret") + ".rept 150\nnop\n.endr\n.p2align 4\n" +
				"unlisted1: mov x1, x0\n" + push + "cmp w0, #1\nb.hi 2f\nadrp x3, table\nadd x3, x3, :lo12:table\n" +
				"ldrb w0, [x3, w0, uxtw]\nadr x3, 1f\nadd x0, x3, w0, sxtb #2\nbr x0\n1: b 2f\n3: bl unlisted2\n2: " + pop + "ret\n.p2align 4\n" +
				"unlisted2: mov x2, x0\nret\n.p2align 4\nunlisted3: mov x3, x0\nret\n.p2align 4\nunlisted4: mov x4, x0\nret\n" +
				".section .rodata\ntable: .byte 0, 1\n.text\n",
			want: "1:  +0 lr\n2:  +0 lr\n3: unknown-entry +0 lr\nf:  +0 lr",
		},
		{
			name: "code that runs on: as a tail call, and with a frame; into zeros it does not",
			text: afn("f", "mov x0, x1") + afn("g", other) + afn("h", frame+"mov x0, x1") + afn("i", other) +
				afn("j", frame+"isb\n.word 0") + afn("k", other),
			want: "f:  +0 lr\ng:  +0 lr\nh:  +0 lr\ni: jump-into-site +0 lr\nj:  +0 lr\nk:  +0 lr",
		},
		{
			name: "only jumped to: nothing in use, by a condition, jumping back, with something in x16 on one way",
			text: afn("f", "mov x1, x0\nb a") + afn("g", "cbz x0, b\nret") + afn("h", "mov x1, x0\nb c\nh2: ret") + afn("i", "mov x16, #1\nb d") +
				stripped("a: mov x2, x1\ncbz x1, 1f\nmov x16, x2\n1: ret") + stripped("b: mov x3, x1\nret") +
				stripped("c: mov x4, x1\nb h2") + stripped("d: mov x5, x1\ncbz x1, 1f\nmov x0, x16\n1: ret"),
			want: "2:  +0 lr\n3: only-jumped-to +0 lr\n4: only-jumped-to +0 lr\n5: only-jumped-to +0 lr",
		},
		{
			name: "a shadow call stack",
			text: afn("f", "str x30, [x18], #8\nret") + afn("g", "mov x0, x1\nstr x30, [x18], #8\nret"),
			want: "f: shadow-call-stack +0 lr\ng: shadow-call-stack +0 lr",
		},
		{
			name: "what Go has made",
			text: afn("f", other) + ".section .gopclntab,\"a\"\n.quad 0\n.text\n",
			want: "f: go-image +0 lr",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			img := onARM64.asm(t, ".section .interp,\"a\"\n.asciz \"/lib/ld.so\"\n.text\n"+start+tt.text, append([]string{"-static", "-no-pie", "-march=armv8.5-a"}, strings.Fields(tt.args)...)...)
			want := strings.Split(tt.want, "\n")
			names := map[string]bool{}
			for _, w := range want {
				name, _, _ := strings.Cut(w, ":")
				names[name] = true
			}
			f := open(t, img)
			var got []string
			for _, s := range findWith(t, img, Options{Plain: PlainAll}) {
				name := s.Name
				if code, err := f.Bytes(s.Func, 4); name == "" && err == nil {
					name = fmt.Sprint(code[0] & 31) // the register it begins with
				}
				if !names[name] {
					continue
				}
				ret := RetLR
				if s.Traceable() {
					ret = s.Ret
				}
				got = append(got, fmt.Sprintf("%s: %s +%d %v", name, s.Reason, s.Addr-s.Func, ret))
				if s.Traceable() && (s.Kind != KindPlain || s.Len != 4 || s.Moved != 4) {
					t.Errorf("%s: kind %v, %d bytes, %d moved", name, s.Kind, s.Len, s.Moved)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
