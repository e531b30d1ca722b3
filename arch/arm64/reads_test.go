package arm64

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fentry-dev/fentry/internal/testtool"
)

// generalRegister is one in objdump's text; register 31 is the stack pointer, or is not a register.
var generalRegister = regexp.MustCompile(`\b[wx]([0-9]+)\b`)

func registersIn(text string) (set uint32) {
	for _, m := range generalRegister.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		set |= 1 << n
	}
	return set
}

// readsOf returns the registers that an instruction surely reads, by objdump's text, and those that it may.
func readsOf(mnemonic, args string) (surely, maybe uint32) {
	maybe = registersIn(args)
	first, rest, _ := strings.Cut(args, ",")
	memory := registersIn(args[max(strings.IndexByte(args, '['), 0):])
	switch {
	case strings.HasPrefix(mnemonic, "st") && strings.Contains(mnemonic, "x"): // stxr and its kin: a status first
		return registersIn(rest), registersIn(rest)
	case strings.HasPrefix(mnemonic, "bic"):
	case strings.HasPrefix(mnemonic, "st"), strings.HasPrefix(mnemonic, "b"), strings.HasPrefix(mnemonic, "cb"),
		strings.HasPrefix(mnemonic, "tb"), strings.HasPrefix(mnemonic, "ccm"), mnemonic == "msr", mnemonic == "cmp", mnemonic == "cmn",
		mnemonic == "tst", mnemonic == "movk", strings.HasPrefix(mnemonic, "bf") && !strings.Contains(first, "."), mnemonic == "dc", mnemonic == "ic",
		strings.HasPrefix(mnemonic, "cas"):
		return maybe, maybe
	case strings.HasPrefix(mnemonic, "swp"), strings.HasPrefix(mnemonic, "ldadd"), strings.HasPrefix(mnemonic, "ldset"),
		strings.HasPrefix(mnemonic, "ldclr"), strings.HasPrefix(mnemonic, "ldeor"):
		return registersIn(first) | memory, maybe
	case strings.Contains(args, "["):
		return memory, memory
	case mnemonic == "mrs" || mnemonic == "adr" || mnemonic == "adrp" || strings.HasPrefix(mnemonic, "ldr"):
		return 0, 0
	}
	return registersIn(rest), registersIn(rest) | registersIn(first)&vectorsOnly(first)
}

// vectorsOnly is 0 for a register, as a destination is not read.
func vectorsOnly(first string) uint32 {
	if generalRegister.MatchString(first) {
		return 0
	}
	return ^uint32(0)
}

// TestReads holds Reads and FlagUse against what objdump names.
func TestReads(t *testing.T) {
	testtool.Need(t, objdumpTool)
	limit := 300_000
	if testtool.Wide() {
		limit = 20_000_000
	}
	for _, file := range []string{"libc.so.6", "libm.so.6"} {
		n, wrong, flags := 0, 0, 0
		objdump(t, func(l objdumpLine) bool {
			text, _, _ := strings.Cut(l.text, "//")
			text, _, _ = strings.Cut(text, " <")
			mnemonic, args, _ := strings.Cut(text, "\t")
			if strings.HasPrefix(mnemonic, ".") || strings.HasPrefix(mnemonic, "udf") || l.word>>25&15 == 2 || scalable.MatchString(args) {
				return true
			}
			n++
			surely, maybe := readsOf(mnemonic, args)
			if in := DecodeWord(l.word); in.Op == Ret || in.Op == Pac || in.Op == Aut || in.Op == Hint {
				return n < limit
			}
			reads := Reads(l.word) &^ (1 << 31)
			readsFlags, kills := FlagUse(l.word)
			wantFlags, wantKills := flagsIn(mnemonic, args)
			if wantFlags {
				flags++
			}
			if surely&^reads != 0 || reads&^maybe != 0 || readsFlags != wantFlags || kills != wantKills {
				if wrong++; wrong <= 20 {
					t.Errorf("%#x: %08x %s: reads %#x, at least %#x, at most %#x; flags: read %v, %v, changed %v, %v", l.addr, l.word, l.text,
						reads, surely, maybe, readsFlags, wantFlags, kills, wantKills)
				}
			}
			return n < limit
		}, "-d", filepath.Join(sysroot, "lib", file))
		if n < 10_000 || flags < 100 {
			t.Errorf("%s: %d instructions, %d of them read flags", file, n, flags)
		}
	}
}

var scalable = regexp.MustCompile(`\b[zp][0-9]+[./,]`)

// flagsIn reports whether an instruction reads and replaces the flags, by objdump's text.
func flagsIn(mnemonic, args string) (reads, kills bool) {
	switch mnemonic {
	case "csel", "csinc", "csinv", "csneg", "cset", "csetm", "cinc", "cinv", "cneg", "adc", "sbc", "ngc", "fcsel":
		return true, false
	case "ccmp", "ccmn", "adcs", "sbcs", "ngcs", "fccmp", "fccmpe":
		return true, true
	case "cmp", "cmn", "tst", "adds", "subs", "ands", "bics", "negs":
		return false, true
	case "fcmp", "fcmpe":
		return false, true
	case "mrs":
		return strings.HasSuffix(args, "nzcv"), false
	}
	return strings.HasPrefix(mnemonic, "b."), false
}

// TestAccess decodes each form of loads and stores.
func TestAccess(t *testing.T) {
	for _, tt := range []struct {
		word uint32
		text string
		want Access
	}{
		{0xf94007e0, "ldr x0, [sp, #8]", Access{Base: 31, Disp: 8, Size: 8, Regs: []byte{0}}},
		{0xb9000fa1, "str w1, [x29, #12]", Access{Base: 29, Disp: 12, Size: 4, Store: true, Regs: []byte{1}}},
		{0xa9bd7bfd, "stp x29, x30, [sp, #-48]!", Access{Base: 31, Disp: -48, Size: 8, Store: true, Regs: []byte{29, 30}, Index: -48}},
		{0xa8c37bfd, "ldp x29, x30, [sp], #48", Access{Base: 31, Size: 8, Regs: []byte{29, 30}, Index: 48}},
		{0xa9017bfd, "stp x29, x30, [sp, #16]", Access{Base: 31, Disp: 16, Size: 8, Store: true, Regs: []byte{29, 30}}},
		{0x294107e0, "ldp w0, w1, [sp, #8]", Access{Base: 31, Disp: 8, Size: 4, Regs: []byte{0, 1}}},
		{0xf81f0ffe, "str x30, [sp, #-16]!", Access{Base: 31, Disp: -16, Size: 8, Store: true, Regs: []byte{30}, Index: -16}},
		{0xf84107fe, "ldr x30, [sp], #16", Access{Base: 31, Size: 8, Regs: []byte{30}, Index: 16}},
		{0xf85f83a2, "ldur x2, [x29, #-8]", Access{Base: 29, Disp: -8, Size: 8, Regs: []byte{2}}},
		{0x6d0227e8, "stp d8, d9, [sp, #32]", Access{Base: 31, Disp: 32, Size: 8, Store: true, Regs: []byte{RegVector, RegVector}}},
		{0x3dc007e0, "ldr q0, [sp, #16]", Access{Base: 31, Disp: 16, Size: 16, Regs: []byte{RegVector}}},
		{0x39403fe3, "ldrb w3, [sp, #15]", Access{Base: 31, Disp: 15, Size: 1, Regs: []byte{3}}},
		{0xb9800be3, "ldrsw x3, [sp, #8]", Access{Base: 31, Disp: 8, Size: 4, Regs: []byte{3}}},
		{0x69410fe2, "ldpsw x2, x3, [sp, #8]", Access{Base: 31, Disp: 8, Size: 4, Regs: []byte{2, 3}}},
		{0xf9800fe0, "prfm pldl1keep, [sp, #24]", Access{}},
		{0xf8616be0, "ldr x0, [sp, x1]", Access{}},
		{0x910043ff, "add sp, sp, #0x10", Access{}},
		{0xc85f7fe0, "ldxr x0, [sp]", Access{}},
		{0x58000040, "ldr x0, 8", Access{}},
	} {
		var room [2]byte
		got, ok := AccessOf(tt.word, &room)
		if text := disassemble(t, code(tt.word), 0); !strings.HasPrefix(strings.ReplaceAll(text, ", ", ","), strings.ReplaceAll(tt.text, ", ", ",")) && tt.text != "ldr x0, 8" {
			t.Errorf("%08x is %s, not %s", tt.word, text, tt.text)
		}
		if ok != (tt.want.Size > 0) {
			t.Errorf("%s: %v", tt.text, ok)
			continue
		}
		if ok && (got.Base != tt.want.Base || got.Disp != tt.want.Disp || got.Size != tt.want.Size || got.Store != tt.want.Store ||
			got.Index != tt.want.Index || string(got.Regs) != string(tt.want.Regs)) {
			t.Errorf("%s: %+v, want %+v", tt.text, got, tt.want)
		}
	}
}
