package stub

import (
	"debug/elf"
	"encoding/binary"
	"os/exec"
	"runtime"
	"testing"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/internal/testtool"
	"github.com/fentry-dev/fentry/stub/internal/build"
)

// A machine is what the harness has to know of one.
type machine struct {
	name   string
	elf    elf.Machine
	target build.Target
	cc     string
	site   int // bytes of a site, all of them nops
	nop    []byte
	regs   string // test of registers
	shared bool   // what shared objects get
	// thunkSize is how large thunks of a kind are.
	thunkSize func(k arch.ThunkKind) int
	backSize  int // and what they have apart
	// thunk writes the thunk of a site to dst, and what it has apart to back, and returns what the site becomes.
	thunk func(dst, back []byte, t thunk) (site []byte, err error)
	// frames are the unwind rows of thunks for address base.
	frames func(base uint64, thunks []thunk) []byte
}

// A thunk of either machine.
type thunk struct {
	addr, back, switched, enter, exit, site, body uint64
	id                                            uint32
	size                                          int // of all
	function, count, behind                       bool
}

var onAMD64 = &machine{
	name: "amd64", elf: elf.EM_X86_64, target: build.AMD64, cc: "gcc", site: 5, nop: []byte{0x90}, regs: "testdata/regs.S",
	thunkSize: amd64.ThunkSize,
	thunk: func(dst, _ []byte, t thunk) ([]byte, error) {
		th := t.amd64()
		return binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(t.addr-(t.site+5))), th.Encode(dst)
	},
	frames: func(base uint64, thunks []thunk) []byte {
		var list []amd64.Thunk
		for _, t := range thunks {
			list = append(list, t.amd64())
		}
		return amd64.ThunkFrames(base, list).EhFrame
	},
}

func (t thunk) amd64() amd64.Thunk {
	return amd64.Thunk{
		Addr: t.addr, Switch: t.switched, Enter: t.enter, Exit: t.exit, Body: t.body, ID: t.id, Size: t.size, Kind: t.kind(),
	}
}

func (t thunk) kind() arch.ThunkKind {
	switch {
	case t.behind && t.count:
		return arch.ThunkMcountCount
	case t.count:
		return arch.ThunkCount
	case t.behind && t.function:
		return arch.ThunkMcountFunc
	case t.behind:
		return arch.ThunkMcount
	case t.function:
		return arch.ThunkFunc
	}
	return arch.ThunkGraph
}

var onARM64 = &machine{
	name: "arm64", elf: elf.EM_AARCH64, target: build.ARM64, cc: "aarch64-linux-gnu-gcc", site: 8, nop: []byte{0x1f, 0x20, 0x03, 0xd5}, regs: "testdata/regs-arm64.S",
	thunkSize: func(arch.ThunkKind) int { return arm64.FrontSize },
	backSize:  arm64.BackSize,
	thunk: func(dst, back []byte, t thunk) ([]byte, error) {
		th := t.arm64()
		if err := th.Encode(dst); err != nil {
			return nil, err
		}
		if arm64.HasBack(th.Kind) {
			if err := th.EncodeBack(back); err != nil {
				return nil, err
			}
		}
		op := arm64.AppendJump
		if t.behind {
			op = arm64.AppendCall
		}
		return op(nil, t.site, t.addr)
	},
	frames: func(base uint64, thunks []thunk) []byte {
		var list []arm64.Thunk
		for _, t := range thunks {
			list = append(list, t.arm64())
		}
		return arm64.ThunkFrames(base, list, arm64.AnyShadow).EhFrame
	},
}

// frameBehind is how far S is above x29 at sites behind a prologue: regs-arm64.S has the one.
const frameBehind = 32

func (t thunk) arm64() arm64.Thunk {
	th := arm64.Thunk{Addr: t.addr, Back: t.back, Switch: t.switched, Enter: t.enter, Exit: t.exit, Body: t.body, ID: t.id, Kind: t.kind()}
	if th.Kind == arch.ThunkMcount {
		th.Frame = frameBehind
	}
	return th
}

// command returns how a program for the machine is run here, on a processor of a
// kind where it is not the host's.
func (m *machine) command(t testing.TB, cpu, path string, args ...string) *exec.Cmd {
	if m == onARM64 && runtime.GOARCH != "arm64" {
		testtool.Need(t, "qemu-aarch64")
		if cpu == "" {
			cpu = testtool.NewARM64
		}
		return exec.Command("qemu-aarch64", append([]string{"-cpu", cpu, "-L", "/usr/aarch64-linux-gnu", path}, args...)...)
	}
	return exec.Command(path, args...)
}

// emulated says whether the machine's programs are run by qemu.
func (m *machine) emulated() bool { return m.name != runtime.GOARCH }
