package patch

import (
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio/ehframe"
)

func (arm64Machine) syscallLen(s *Syscall, _ []byte) int {
	switch {
	case s.Go:
		return arm64.GoSyscallLen
	case s.Routine != 0:
		return arm64.SyscallCallLen
	}
	return arm64.SyscallLen
}

func (arm64Machine) appendSyscall(dst []byte, s *Syscall, _ []byte, to uint64, r enterExit) ([]byte, error) {
	if s.Go {
		c := arm64.GoSyscallCopy{At: s.Addr, Enter: r.enter, Exit: r.exit}
		return c.Append(dst, to)
	}
	if s.Routine != 0 {
		c := arm64.SyscallCallCopy{At: s.Addr, Routine: s.Routine, Cancelled: s.Cancelled, Enter: r.enter, Exit: r.exit}
		return c.Append(dst, to)
	}
	c := arm64.SyscallCopy{At: s.Addr, Enter: r.enter, Exit: r.exit}
	return c.Append(dst, to)
}

func (arm64Machine) appendFarJump(dst []byte, to uint64) []byte { return arm64.AppendFarJump(dst, to) }

// syscallReaches: branches reach 128 MiB, and no register is free for more.
func (arm64Machine) syscallReaches(from, to uint64) bool {
	return arm64.Reaches(from, to) && arm64.Reaches(to, from)
}

// syscallRows: the one that the original has at the instruction, and those of the copy's two pushed words.
func (arm64Machine) syscallRows(dst []byte, d *ehframe.FDE, s *Syscall, _ []byte) ([]byte, error) {
	dst, row, err := appendRow(dst, d, s.Addr)
	if err != nil {
		return dst, err
	}
	if s.Routine != 0 {
		if row.Reg == arm64.StackPointer {
			dst = arm64.SyscallCallRows(dst, row.Off, d.CIE.CodeAlign)
		}
		return dst, nil
	}
	cfa := int64(-1)
	if row.Reg == arm64.StackPointer {
		cfa = row.Off
	}
	return arm64.SyscallRows(dst, cfa, row.Moved, d.CIE.CodeAlign), nil
}
