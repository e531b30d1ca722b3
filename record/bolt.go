package record

import (
	"slices"

	"github.com/fentry-dev/fentry/elfio"
)

// BOLT (llvm-bolt) writes functions anew behind the image, and leaves what they were, with its unwind entries but
// without symbols, in a section of another name. Nothing comes there any more. It drops nops, so the addresses of
// -fpatchable-function-entry are those of other instructions: such functions are as if no compiler had prepared them.
//
// What BOLT has not rewritten stays where it is and keeps its symbol. In an image that was stripped afterwards the two
// cannot be told apart; then all of it is traced, as what nobody calls does no harm.

const boltOriginal = ".bolt.org.text"

// bolt takes what it has left out of the sites.
func (fd *finder) bolt() {
	isOriginal := func(s elfio.Section) bool { return s.Name == boltOriginal }
	if len(fd.im.tab.Symbols()) == 0 || !slices.ContainsFunc(fd.im.f.Sections, isOriginal) {
		return
	}
	for i := range fd.sites {
		s := &fd.sites[i]
		switch r := fd.im.code.Region(s.Func); {
		case r != nil && r.Name == boltOriginal && s.Name == "":
			s.Reason = ReasonMovedByBOLT
		case s.Kind == KindPatchable && s.Reason == ReasonUnexpected:
			*s = Site{
				Func: s.Func, Size: s.Size, Name: s.Name, Aliases: s.Aliases, Addr: s.Func, Source: s.Source, Reason: ReasonNoSite,
			}
		}
	}
}
