package tracee

import "github.com/fentry-dev/fentry/arch"

// Follows: the runtime of this machine asks before it executes a program.
const Follows = true

// execReach is how far a branch may lead to the page with the stubs.
const execReach = 100 << 20

func findExecs(code []byte, at func(b []byte, far int64) error) []execSite {
	return arm64FindExecs(code, at)
}

func execStubs(page, routine uint64, sites []execSite) ([]byte, []arch.Edit) {
	return arm64ExecStubs(page, routine, sites)
}
