package record

import (
	"slices"
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
//
// Code that was compiled with -fno-plt has no stubs: it calls through the word, and tail calls jump through it. There the
// calls themselves are rewritten, all of a function to one thunk. They have six bytes, and a call of six bytes takes
// their place (an addr32 prefix, as linkers do when they relax such calls), so the return address is the same.

// stub is what a linker makes for calls of one function of another image.
type stub struct {
	start uint64 // first byte: what calls go to
	jump  uint64 // its jump through the word, behind a landing pad or the number of the relocation
	n     int    // bytes of the jump
	slot  uint64 // address of the word
}

// wordCall is a call through a word of the image, or, as a tail call, a jump.
type wordCall struct {
	addr uint64
	n    int
	slot uint64
	tail bool
}

// libraryCalls adds the sites of calls into libraries, if they are asked for.
func (fd *finder) libraryCalls() error {
	if !fd.o.LibraryCalls && !fd.o.Named.namesCalls() || !plain.Supported(fd.im.f) {
		return nil
	}
	names, err := fd.imports()
	if err != nil || len(names) == 0 {
		return err
	}
	calls, err := fd.wordCalls(names)
	if err != nil {
		return err
	}
	foreign := Reason(plain.Foreign(fd.im.f))
	add := func(s Site) {
		name := names[s.Slot]
		s.Name, s.Kind, s.Ret, s.Calls, s.Reason = name+symbol.CallSuffix, KindLibCall, fd.m.atEntry(), calls[s.Slot], foreign
		if s.Reason == "" {
			s.Reason = callReason(name)
		}
		if fd.prof.slots[s.Slot] != profNone {
			s.Reason = ReasonProfiler
		}
		delete(calls, s.Slot) // of several stubs, the first one has them
		fd.sites = append(fd.sites, s)
	}
	for i := range fd.im.code.Regions {
		r := &fd.im.code.Regions[i]
		if !symbol.IsStubSection(r.Name) {
			continue
		}
		for _, st := range fd.m.jumpStubs(r) {
			if names[st.slot] == "" || fd.im.funcs.at(st.start) >= 0 {
				continue
			}
			add(Site{
				Func: st.start, Size: st.jump + uint64(st.n) - st.start, Addr: st.jump, Len: st.n, Moved: st.n, Slot: st.slot,
				Source: r.Name, Bytes: r.Data[st.jump-r.Addr:][:st.n:st.n],
			})
		}
	}
	for slot := range calls {
		add(Site{Func: slot, Addr: slot, Slot: slot, Source: SourceScan})
	}
	sortSites(fd.sites)
	return nil
}

// imports are the names of other images' functions, by the address of the word that calls of one go through.
func (fd *finder) imports() (map[uint64]string, error) {
	all, err := symbol.Imports(fd.im.f)
	names := make(map[uint64]string, len(all))
	for _, m := range all {
		names[m.Slot] = m.Name
	}
	return names, err
}

// wordCalls are the calls through words of known functions, by word.
func (fd *finder) wordCalls(names map[uint64]string) (map[uint64][]uint64, error) {
	out := map[uint64][]uint64{}
	for i := range fd.im.code.Regions {
		r := &fd.im.code.Regions[i]
		if symbol.IsStubSection(r.Name) || !r.Exact {
			continue
		}
		for _, c := range fd.m.wordCalls(r, func(slot uint64) bool { return names[slot] != "" }) {
			f, err := fd.sweep()
			if err != nil {
				return nil, err
			}
			if f.Call(c.addr, c.n, c.tail) {
				out[c.slot] = append(out[c.slot], c.addr)
			}
		}
	}
	return out, nil
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
	if Unwinds(name) {
		return ReasonLooksAtCaller
	}
	return ""
}

// Unwinds reports whether a function of that name is one of an unwinder's interface, some of which begin with their own caller: gcc's
// and LLVM's, and that of libunwind.
func Unwinds(name string) bool {
	return slices.ContainsFunc([]string{"_Unwind_", "unw_", "_Ux86_64_", "_ULx86_64_"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}
