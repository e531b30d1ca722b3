package record

import (
	"debug/elf"
	"encoding/binary"
	"strings"

	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/record/code"
)

// arm64Machine is AArch64 with A64 instructions, which are little-endian in big-endian images too.
type arm64Machine struct{ code.Machine }

// arm64SiteSize is one b.
const arm64SiteSize = arm64.JumpLen

// arm64Profilers are the functions compilers call for -pg on AArch64: gcc and clang name _mcount. A call before the
// prologue would destroy the return address, so there is no __fentry__.
var arm64Profilers = map[string]profClass{
	"mcount":  profMcount,
	"_mcount": profMcount,
}

func (arm64Machine) profilers() map[string]profClass { return arm64Profilers }

func (arm64Machine) siteSize() int { return arm64SiteSize }

func (arm64Machine) atEntry() RetLoc { return RetLR }

func (arm64Machine) prologues(c *code.Text) prologues { return &arm64Walk{code: c} }

// jump follows a veneer.
func (arm64Machine) jump(c *code.Text, addr uint64) (uint64, bool) {
	in, err := arm64.Decode(c.From(addr))
	if err != nil || in.Op != arm64.Jmp {
		return 0, false
	}
	to := in.Target(addr)
	if t, ok := arm64.VeneerTarget(c.From(to), to); ok {
		to = t
	}
	return to, true
}

// isPatchable wants two nops: compilers begin an empty function with one where they do not optimise.
func (arm64Machine) isPatchable(b []byte) bool { return arm64.IsNops(b) >= 2*arm64.InstLen }

func (arm64Machine) around(_ *code.Text, addr uint64, n int) (uint64, int) { return addr, n }

func (arm64Machine) listed(_ *image, a uint64) uint64 { return a }

// refuse recognises str x30,[x18],#8. A function that keeps its return address there needs no frame, and its callee
// would then have the same shadow.
func (arm64Machine) refuse(im *image, s *Site) Reason {
	const prologue = 8 // instructions
	from := s.End()
	if s.Kind == KindPlain {
		from = s.Addr // the site is instructions
	}
	end := from + prologue*arm64.InstLen
	if i := im.funcs.at(s.Func); i >= 0 {
		end = min(end, im.funcs.extent(i, im.code))
	}
	for b := im.code.Range(from, end); len(b) >= arm64.InstLen; b = b[arm64.InstLen:] {
		if binary.LittleEndian.Uint32(b) == 0xf800865e {
			return ReasonShadowStack
		}
	}
	return ""
}

func (arm64Machine) sled() string {
	return "\x08\x00\x00\x14" + // b .+32
		strings.Repeat("\x1f\x20\x03\xd5", 7) // nop
}

var arm64Relocs = relocTypes{
	word:      uint32(elf.R_AARCH64_ABS64),
	gotEntry:  uint32(elf.R_AARCH64_GLOB_DAT),
	pltEntry:  uint32(elf.R_AARCH64_JUMP_SLOT),
	irelative: uint32(elf.R_AARCH64_IRELATIVE),
}
