package amd64

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/fentry-dev/fentry/arch"
)

// Ftrace implements arch.Ftrace for amd64, for sites of 5 bytes and more.
//
// A 5-byte site holds e8 rel32 or nop5. A 6-byte site is found in position-independent code: ff 15 disp32 through a
// GOT slot, or what linkers relax that to when they know the target: 67 e8 rel32, or e8 rel32 with a nop before or
// after it. A 13-byte site belongs to the large code model: movabs $mcount,%r10; call *%r10. All of these are
// recognised as calls to be replaced by nops; calls are written as e8 rel32 and 67 e8 rel32, followed by nops at
// longer sites.
//
// Any run of nops that fills a site is accepted as nops, since compilers differ: five 90 (gcc), 0f 1f 44 00 08
// (clang), 0f 1f 44 00 00 (-mnop-mcount), and so on.
type Ftrace struct{}

var _ arch.Ftrace = Ftrace{}

// McountInsnSize returns 5, the length of call rel32. The return address of a call at a 6-byte site is site+6, unless
// a linker put the nop after the call.
func (Ftrace) McountInsnSize() int { return CallLen }

// CallAdjust returns the site that a word of __mcount_loc or
// __patchable_function_entries stands for: the word itself, except that
//   - a landing pad there, endbr64, belongs to the function and is skipped;
//   - recordmcount subtracts one from the relocation's offset whatever the instruction, so for ff 15 disp32 (PIC
//     objects) and 49 ba imm64 41 ff d2 (large model) its word is the address of the instruction's second byte.
//
// An unreadable addr is a *arch.Bug of class Fault.
func (Ftrace) CallAdjust(mem arch.Memory, addr uint64) (uint64, error) {
	var b [13]byte
	read := func(at uint64, n int) bool { return mem.ReadAt(b[:n], at) == nil }
	if err := mem.ReadAt(b[:1], addr); err != nil {
		return 0, arch.Change{Site: arch.Site{Addr: addr}}.Bug(arch.Fault, nil, nil, err)
	}
	switch b[0] {
	case 0xf3:
		if read(addr, 4) && string(b[:4]) == "\xf3\x0f\x1e\xfa" {
			return addr + 4, nil
		}
	case 0x15:
		if read(addr-1, 1) && b[0] == 0xff {
			return addr - 1, nil
		}
	case 0xba:
		if read(addr-1, 13) && b[0] == 0x49 && string(b[10:13]) == "\x41\xff\xd2" {
			return addr - 1, nil
		}
	}
	return addr, nil
}

// CheckSite returns an error for sites of fewer than 5 bytes and for very long ones.
func (Ftrace) CheckSite(s arch.Site) error {
	if s.Len < CallLen || s.Len > maxSite {
		return fmt.Errorf("a site has %d to %d bytes, not %d", CallLen, maxSite, s.Len)
	}
	return nil
}

// maxSite bounds what a caller can have allocated; compilers make sites of up to 13 bytes
// themselves and as many as -fpatchable-function-entry was told.
const maxSite = 1 << 16

// Verify compares the bytes at the site with what c starts from. The report names the form that this package would
// have written.
func (Ftrace) Verify(_ arch.Memory, c arch.Change, actual []byte) *arch.Bug {
	if expected, ok := startsFrom(c, actual); !ok {
		return c.Bug(arch.Mismatch, actual, expected, nil)
	}
	return nil
}

func startsFrom(c arch.Change, actual []byte) (expected []byte, ok bool) {
	s := c.Site
	switch c.Action {
	case arch.Call, arch.GraphEnable:
		return AppendNops(nil, s.Len), IsNops(actual) == s.Len
	case arch.Nop, arch.Modify:
		for _, form := range callForms(s, c.Old) {
			if bytes.Equal(actual, form) {
				return form, true
			}
			if expected == nil {
				expected = form
			}
		}
		return expected, false
	case arch.Func:
		return []byte{0xe8}, actual[0] == 0xe8
	case arch.GraphDisable:
		expected, err := AppendJumpSite(nil, s.Len, s.Addr, c.Old)
		return expected, err == nil && bytes.Equal(actual, expected)
	}
	return nil, false
}

// callForms returns the ways a call to addr can fill the site; the one that is written first.
func callForms(s arch.Site, addr uint64) [][]byte {
	var forms [][]byte
	add := func(b []byte, err error) {
		if err == nil { // a form that cannot reach addr cannot be there
			forms = append(forms, b)
		}
	}
	add(AppendCallSite(nil, s.Len, s.Addr, addr))
	switch s.Len {
	case 6:
		// ld -z call-nop=suffix-nop, prefix-nop
		if b, err := AppendCall(nil, s.Addr, addr); err == nil {
			add(append(b, 0x90), nil)
		}
		add(AppendCall([]byte{0x90}, s.Addr+1, addr))
		if s.Slot != 0 {
			add(AppendCallGOT(nil, s.Addr, s.Slot))
		}
	case 13: // -mcmodel=large
		b := binary.LittleEndian.AppendUint64([]byte{0x49, 0xba}, addr) // movabs $addr,%r10
		add(append(b, 0x41, 0xff, 0xd2), nil)                           // call *%r10
	}
	return forms
}

// Replacement returns the bytes that c leaves at the site.
func (Ftrace) Replacement(c arch.Change) ([]byte, error) {
	s := c.Site
	switch c.Action {
	case arch.Nop, arch.GraphDisable:
		return AppendNops(nil, s.Len), nil
	case arch.Call, arch.Modify, arch.Func:
		return AppendCallSite(nil, s.Len, s.Addr, c.New)
	case arch.GraphEnable:
		return AppendJumpSite(nil, s.Len, s.Addr, c.New)
	}
	return nil, fmt.Errorf("action %d writes nothing", c.Action)
}
