//go:build linux

package fentry

import (
	"path"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
)

// Exceptions in processes that run already.
//
// What was added to such a process is in no unwind table that its unwinders look for. It need not be where a function that is
// recorded has called something: the function's own entry says where its caller is. But a function can end by a jump, and what it
// jumps to then returns to the tracer. In another image, or for a library's function whose calls are recorded, the entry says no
// more than that, and an exception gets no further: the program is terminated, or destructors are left out. A handler can have
// interrupted the tracer, and a thread can be cancelled in a system call that has moved. So where unwinders ask glibc which table
// an address is in, the runtime answers. Where one does otherwise, such functions are left alone, and such calls are not moved.

// unwinderLibraries are the libraries that throw exceptions: gcc's, LLVM's and that of libc++.
var unwinderLibraries = []string{"libgcc_s.so", "libunwind.so", "libc++abi.so"}

const (
	findObject = "_dl_find_object"   // what an unwinder asks glibc
	iterate    = "dl_iterate_phdr"   // what it asks it otherwise
	gccLibrary = "libgcc_s.so.1"     // what glibc loads to cancel a thread, from beside itself
	ownSymbol  = "_Unwind_Resume"    // of whoever has another image unwind
	backtrace  = "_Unwind_Backtrace" // ...
	raise      = "_Unwind_RaiseException"
)

// unwinders is what those of some processes know. Of one that cannot be looked at they know nothing.
func unwinders(pids []int) patch.Unwinders {
	switch {
	case !slices.ContainsFunc(pids, func(pid int) bool { return !unwindersKnow(pid) }):
		return patch.UnwindersKnow
	case slices.ContainsFunc(pids, unwound):
		return patch.UnwindersBlind
	}
	return patch.UnwindersNone
}

// unwindersKnow reports whether all unwinders of a process, those that glibc loads later included, ask glibc, and the runtime can
// answer.
func unwindersKnow(pid int) bool {
	maps, err := session.Maps(pid)
	if err != nil || session.CanLeadUnwinders(pid) != nil {
		return false
	}
	root, gcc := session.ProcessDir(pid)+"/root", false
	knows := func(file string) bool {
		dynamic, err := dynamicOf(root + file)
		if err != nil {
			return false
		}
		undefined := func(name string) bool { d, ok := dynamic[name]; return ok && !d }
		if strings.HasPrefix(path.Base(file), unwinderLibraries[0]) {
			gcc = true
			return undefined(findObject)
		}
		return !undefined(iterate) || undefined(ownSymbol) || undefined(backtrace) || undefined(raise)
	}
	libc := ""
	for file := range executableFiles(maps) {
		if !knows(file) {
			return false
		}
		if strings.HasPrefix(path.Base(file), "libc.so.") {
			libc = file
		}
	}
	return gcc || knows(path.Join(path.Dir(libc), gccLibrary))
}

// dynamicOf tells which of the symbols that matter a file has, and whether it defines them. It has none if it is no image.
func dynamicOf(file string) (map[string]bool, error) {
	names := []string{findObject, iterate, ownSymbol, backtrace, raise}
	has := make(map[string]bool)
	return has, inCode(file, func(f *elfio.File) error {
		if any, err := f.HasDynamicSymbol(names...); err != nil || !any {
			return err
		}
		syms, err := f.DynamicSymbols()
		for i := range syms {
			if s := &syms[i]; slices.Contains(names, s.Name) {
				has[s.Name] = s.Defined()
			}
		}
		return err
	})
}

// unwound reports whether exceptions may pass through code of a process. Of one that cannot be looked at it says that they may.
func unwound(pid int) bool {
	maps, err := session.Maps(pid)
	if err != nil {
		return true
	}
	for file := range executableFiles(maps) {
		if slices.ContainsFunc(unwinderLibraries, func(u string) bool { return strings.HasPrefix(path.Base(file), u) }) {
			return true
		}
	}
	has := true
	_ = inCode(session.ProcessDir(pid)+"/exe", func(f *elfio.File) error {
		has = patch.Catches(f) // it can have an unwinder in it
		return nil
	})
	return has
}
