package samples

import "runtime"

// A layout is which registers the kernel copies on a machine.
type layout struct {
	mask uint64 // of enum perf_event_x86_regs or perf_event_arm_regs
	regs []int  // their DWARF numbers, in the order of its bits
	sp   int    // that of the stack pointer
}

// pcRegister is none of DWARF's numbers.
const pcRegister = -1

var layouts = map[string]*layout{
	// AX BX CX DX SI DI BP SP IP, and R8 to R15 from bit 16 on
	"amd64": {0x1ff | 0xff<<16, []int{0, 3, 2, 1, 4, 5, 6, 7, pcRegister, 8, 9, 10, 11, 12, 13, 14, 15}, 7},
	// X0 to X30, SP, PC
	"arm64": {1<<33 - 1, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
		26, 27, 28, 29, 30, 31, pcRegister}, 31},
}

// host is that of the machine that runs this; nil: none is known.
var host = layouts[runtime.GOARCH]
