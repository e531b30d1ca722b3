package record

import (
	"strings"

	"github.com/fentry-dev/fentry/record/plain"
	"github.com/fentry-dev/fentry/symbol"
)

// Calls into libraries.
//
// A call of another image's function goes to a stub that the linker has made in this one, and from there through a word
// that the dynamic linker fills. The stub's jump is a function's first instruction: nothing is on the stack but the
// return address and arguments, and registers hold what the callee is to find. So it is a site like any other that
// moves a function's own instructions, and nothing has to be proven: the jump is one instruction, whole, and behind it
// nothing runs on. The word stays what it is, and with it lazy binding, read-only relocations, and whoever compares or
// replaces what it holds; redirecting the word itself would be undone by the first lazy call.
//
// What the stub jumps to, a relocation of the word tells, so names are there in stripped programs, too. Functions that
// return twice or look at their callers are known by name only: their code is in another image, and can be another one
// each time.

// stub is what a linker makes for calls of one function of another image.
type stub struct {
	start uint64 // first byte: what calls go to
	jump  uint64 // its jump through the word, behind a landing pad or the number of the relocation
	n     int    // bytes of the jump
	slot  uint64 // address of the word
}

// libraryCalls adds the sites of calls into libraries, if they are asked for.
func (fd *finder) libraryCalls() error {
	if !fd.o.LibraryCalls && !fd.o.Named.namesCalls() || !plain.Supported(fd.im.f) {
		return nil
	}
	imports, err := symbol.Imports(fd.im.f)
	if err != nil || len(imports) == 0 {
		return err
	}
	names := make(map[uint64]string, len(imports))
	for _, m := range imports {
		names[m.Slot] = m.Name
	}
	foreign := Reason(plain.Foreign(fd.im.f))
	for i := range fd.im.code.Regions {
		r := &fd.im.code.Regions[i]
		if !symbol.IsStubSection(r.Name) {
			continue
		}
		for _, st := range fd.m.jumpStubs(r) {
			name := names[st.slot]
			if name == "" || fd.im.funcs.at(st.start) >= 0 {
				continue
			}
			s := Site{
				Func: st.start, Size: st.jump + uint64(st.n) - st.start, Name: name + symbol.CallSuffix, Addr: st.jump,
				Len: st.n, Moved: st.n, Kind: KindStub, Ret: fd.m.atEntry(), Slot: st.slot, Source: r.Name,
				Bytes:  r.Data[st.jump-r.Addr:][:st.n:st.n],
				Reason: foreign,
			}
			if s.Reason == "" {
				s.Reason = callReason(name)
			}
			if fd.prof.slots[st.slot] != profNone {
				s.Reason = ReasonProfiler
			}
			fd.sites = append(fd.sites, s)
		}
	}
	sortSites(fd.sites)
	return nil
}

// callReason says why calls of a library's function are left alone; "": they are not.
func callReason(name string) Reason {
	if r := contract(name); r != "" {
		return r
	}
	switch name {
	case "__libc_start_main":
		return ReasonEntryPoint
	case "dlopen", "dlmopen", "dlsym", "dlvsym", "dl_iterate_phdr", "__libc_dlopen_mode", "__libc_dlsym",
		"_dl_mcount_wrapper", "_dl_mcount_wrapper_check", "backtrace":
		return ReasonLooksAtCaller
	}
	for _, prefix := range []string{"_Unwind_", "unw_", "_Ux86_64_", "_ULx86_64_"} {
		if strings.HasPrefix(name, prefix) {
			return ReasonLooksAtCaller
		}
	}
	return ""
}
