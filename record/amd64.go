package record

import (
	"debug/elf"
	"encoding/binary"
	"strings"

	"github.com/fentry-dev/fentry/record/code"
)

// amd64Machine is x86-64.
type amd64Machine struct{ code.Machine }

// amd64SiteSize is room for one jmp rel32.
const amd64SiteSize = 5

// amd64Profilers are the functions compilers call for -pg on x86-64: gcc and clang name mcount, glibc defines _mcount
// and mcount, -mfentry names __fentry__ everywhere.
var amd64Profilers = map[string]profClass{
	"__fentry__": profFentry,
	"mcount":     profMcount,
	"_mcount":    profMcount,
}

func (amd64Machine) profilers() map[string]profClass { return amd64Profilers }

func (amd64Machine) siteSize() int { return amd64SiteSize }

func (amd64Machine) atEntry() RetLoc { return RetSP }

func (amd64Machine) prologues(c *code.Text) prologues { return &amd64Walk{code: c} }

func (amd64Machine) starts(*image) error { return nil }

func (amd64Machine) jump(c *code.Text, addr uint64) (uint64, bool) {
	b := c.From(addr)
	if len(b) >= 2 && b[0] == 0xeb { // jmp rel8, to padding near by
		addr += 2 + uint64(int64(int8(b[1])))
		b = c.From(addr)
	}
	if len(b) < amd64SiteSize || b[0] != 0xe9 {
		return 0, false
	}
	return addr + 5 + uint64(int64(int32(binary.LittleEndian.Uint32(b[1:])))), true
}

// isPatchable recognises five bytes of nops as compilers make them for -fpatchable-function-entry, but not for
// alignment: gcc repeats the one-byte nop, and clang puts a number into the displacement of long ones.
func (amd64Machine) isPatchable(b []byte) bool {
	if len(b) < amd64SiteSize {
		return false
	}
	if string(b[:amd64SiteSize]) == "\x90\x90\x90\x90\x90" {
		return true
	}
	for len(b) > 0 && (b[0] == 0x66 || b[0] == 0x2e) {
		b = b[1:]
	}
	for _, nop := range []string{
		"\x0f\x1f\x44\x00\x08",             // nopl 8(%rax,%rax)
		"\x0f\x1f\x80\x00\x02\x00\x00",     // nopl 512(%rax)
		"\x0f\x1f\x84\x00\x00\x02\x00\x00", // nopl 512(%rax,%rax)
	} {
		if strings.HasPrefix(string(b[:min(len(b), 8)]), nop) {
			return true
		}
	}
	return false
}

// around finds what a nested function's static chain is saved with:
//
//	41 52        push %r10
//	f3 0f 1e fa  endbr64       (-fcf-protection; gcc 12 puts it here, where it does not help)
//	...          call
//	41 5a        pop %r10
//
// There the whole sequence is the site, because the return address is at 0(%rsp) before the push only.
func (m amd64Machine) around(c *code.Text, addr uint64, n int) (uint64, int) {
	b := c.From(addr + uint64(n))
	if len(b) < 2 || b[0] != 0x41 || b[1] != 0x5a {
		return addr, n
	}
	push := addr - 2
	if m.HasPad(c.From(addr - code.PadLen)) {
		push -= code.PadLen
	}
	if p := c.From(push); len(p) < 2 || p[0] != 0x41 || p[1] != 0x52 {
		return addr, n
	}
	return push, int(addr-push) + n + 2
}

// listed: recordmcount takes one byte off the place of the call's relocation, which is right for e8 rel32 only: the
// entries of ff 15 disp32, of what linkers make of it, 67 e8 rel32, and of movabs $imm64,%r10 name the second byte.
func (amd64Machine) listed(im *image, a uint64) uint64 {
	b := im.code.From(a - 1)
	if len(b) < 2 || im.startsAt(a) {
		return a
	}
	switch {
	case b[0] == 0xff && b[1] == 0x15, b[0] == 0x67 && b[1] == 0xe8, b[0] == 0x49 && b[1] == 0xba:
		return a - 1
	}
	return a
}

func (amd64Machine) refuse(*image, *Site) Reason { return "" }

func (amd64Machine) sled() string {
	return "\xeb\x09" + // jmp .+11
		"\x66\x0f\x1f\x84\x00\x00\x02\x00\x00" // nopw 512(%rax,%rax)
}

var amd64Relocs = relocTypes{
	word:      uint32(elf.R_X86_64_64),
	gotEntry:  uint32(elf.R_X86_64_GLOB_DAT),
	pltEntry:  uint32(elf.R_X86_64_JMP_SLOT),
	irelative: uint32(elf.R_X86_64_IRELATIVE),
}
