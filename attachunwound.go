//go:build linux

package fentry

import (
	"path"
	"slices"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/patch"
	"github.com/fentry-dev/fentry/session"
)

// Exceptions in processes that run already.
//
// What was added to such a process is known to no unwinder. It need not be where a function that is recorded has called
// something: the function's own entry says where its caller is. But a function can end by a jump, and what it jumps to then
// returns to the tracer. In another image, or for a library's function whose calls are recorded, the entry says no more than
// that, and an exception gets no further: the program is terminated, or destructors are left out. Where exceptions can be,
// such functions are left alone.

// unwinders are the libraries that throw exceptions: gcc's, LLVM's and that of libc++.
var unwinders = []string{"libgcc_s.so", "libunwind.so", "libc++abi.so"}

// unwound reports whether exceptions may pass through code of one of some processes. Of one that cannot be looked at it says
// that they may.
func unwound(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		maps, err := session.Maps(pid)
		if err != nil {
			return true
		}
		for file := range executableFiles(maps) {
			if slices.ContainsFunc(unwinders, func(u string) bool { return strings.HasPrefix(path.Base(file), u) }) {
				return true
			}
		}
		exe, err := safefile.Open(session.ProcessDir(pid) + "/exe")
		if err != nil {
			return true
		}
		defer exe.Close()
		has := true
		_ = withImage(exe, func(f *elfio.File) error {
			has = patch.Catches(f) // it can have an unwinder in it
			return nil
		})
		return has
	})
}
