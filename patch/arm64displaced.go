package patch

import (
	"fmt"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/arch/arm64"
	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/elfio/ehframe"
	"github.com/fentry-dev/fentry/record"
)

// Functions that sign their return address.
//
// With -mbranch-protection=standard a function that calls others begins with paciasp, which is its landing pad, too, and
// so has to stay where it is. At the site behind it the return address is signed already, with the stack pointer, and
// the function checks that in the end: a thunk's address in its place would not pass. So the signature is taken back
// before the thunk, and made anew, of what the thunk leaves in x30, where the function goes on:
//
//	site:      b displaced
//	displaced: autiasp; b thunk
//	body:      paciasp; the instruction that the site had; b behind the site
//
// Unwinders have to know where the return address is signed: from the site's row to behind autiasp, and again from
// behind paciasp. The alternative, to overwrite paciasp by bti c and the site behind it at once, would leave the row of
// the original wrong at the site.

// Sizes of what a signing function needs, in bytes.
const (
	signedLead = 2 * arm64.InstLen          // autiasp; b thunk
	signedBody = signedLead + arm64.InstLen // paciasp
)

// signing returns what signs the return address in front of a site, and what authenticates it.
func signing(f *elfio.File, site uint64) (sign, authenticate uint32, err error) {
	b, err := f.Bytes(site-arm64.InstLen, arm64.InstLen)
	if err != nil {
		return 0, 0, err
	}
	if sign = le.Uint32(b); arm64.DecodeWord(sign).Op != arm64.PacSP {
		return 0, 0, fmt.Errorf("%08x before %#x does not sign the return address", sign, site)
	}
	return sign, sign | arm64.WordAutiasp&^arm64.WordPaciasp, nil
}

func (arm64Machine) displacedLen(s *record.Site) int {
	n := arm64.DisplacedLen(s.Bytes[:s.Moved])
	if s.Ret == record.RetSignedLR {
		n += signedBody
	}
	return n
}

// inThunk: not of calls, whose callees would be seen to return into a thunk.
func (m arm64Machine) inThunk(s *record.Site, k arch.ThunkKind) (int, bool) {
	if k != arch.ThunkGraph || s.Ret != record.RetLR || m.displacedLen(s) > arm64.DisplacedRoom {
		return 0, false
	}
	op := arm64.DecodeWord(le.Uint32(s.Bytes)).Op
	return arm64.ThunkBypass, op != arm64.Call && op != arm64.CallInd
}

func (arm64Machine) inThunkCIE(c *ehframe.CIE, v *ehframe.Variants) *ehframe.CIE {
	return v.Of(c, arm64.InFront)
}

func (arm64Machine) displacedBody(s *record.Site) int {
	if s.Ret == record.RetSignedLR {
		return signedLead
	}
	return 0
}

func (arm64Machine) displacedAt(s *record.Site, off int) (int, bool) {
	n, ok := arm64.DisplacedAt(s.Bytes[:s.Moved], off)
	if s.Ret == record.RetSignedLR {
		n += signedBody
	}
	return n, ok
}

func (arm64Machine) appendDisplaced(b []byte, f *elfio.File, fn *Func, to, thunk uint64) ([]byte, error) {
	if fn.Ret == record.RetSignedLR {
		sign, authenticate, err := signing(f, fn.Addr)
		if err != nil {
			return nil, err
		}
		b = le.AppendUint32(b, authenticate)
		if b, err = arm64.AppendJump(b, to+arm64.InstLen, thunk); err != nil {
			return nil, err
		}
		b = le.AppendUint32(b, sign)
		to += signedBody
	}
	back := fn.End()
	if fn.back != 0 {
		back = fn.back
	}
	return arm64.AppendDisplaced(b, fn.Bytes[:fn.Moved], fn.Addr, to, back)
}

// unchanged: what a store saves stays in its register. Rows of functions that sign the return address are left as they are.
func (arm64Machine) unchanged(s *record.Site) uint64 {
	if s.Moved != arm64.InstLen || s.Ret == record.RetSignedLR {
		return 0
	}
	in := arm64.DecodeWord(le.Uint32(s.Bytes))
	if in.Op == arm64.Call || in.Op == arm64.CallInd {
		return 0
	}
	return uint64(^arm64.Writes(in.Word)) & (1<<arm64.StackPointer - 1)
}

// entryRows: those of veneers, with the rule that looks behind thunks.
func (arm64Machine) entryRows(hides bool) []byte {
	rows := arm64.VeneerRows()
	if hides {
		rows = append(rows[:len(rows):len(rows)], arm64.CallerRule(arm64.AnyShadow)...)
	}
	return rows
}

// displacedRows: signed, and no longer signed behind autiasp.
func (arm64Machine) displacedRows(s *record.Site, c *ehframe.CIE) ([]byte, int) {
	if s.Ret != record.RetSignedLR {
		return nil, 0
	}
	return arm64.AuthenticatedRows(c.CodeAlign), arm64.InstLen
}

// wordCall: there are none.
func (arm64Machine) wordCall([]byte, uint64) (uint64, bool) { return 0, false }

func (arm64Machine) appendWordCall(dst, _ []byte, at, _ uint64) ([]byte, error) {
	return dst, internalf("a call through a word at %#x", at)
}
