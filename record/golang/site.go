package golang

import (
	"debug/elf"
	"strings"

	"github.com/fentry-dev/fentry/record/moves"
)

// Reason says why a function is not traced.
type Reason string

// The reasons. Package record explains them.
const (
	Assembly        Reason = "go-assembly"
	Runtime         Reason = "go-runtime"
	External        Reason = "go-external"
	Wrapper         Reason = "go-abi-wrapper"
	Measured        Reason = "go-measured"
	NoRoom          Reason = "go-no-room"
	ConditionalExit Reason = "go-conditional-exit"
	ScratchExit     Reason = "go-scratch-exit"
	LoopAtEntry     Reason = "loop-at-entry"
	Undecodable     Reason = "undecodable"
	Switches        Reason = "go-switches"
	Handler         Reason = "go-signal"
	NeedsModule     Reason = "go-needs-module"
	Unchecked       Reason = "go-unchecked"
)

// Options say which functions are looked at.
type Options struct {
	Runtime bool // the runtime's own, too
}

// Site returns how a function is traced, or why it is not.
func (im *Image) Site(f *Func, o Options) (moves.Moves, Reason) {
	r := f.reason(o)
	if r == "" && !im.Version.Module() {
		switch {
		case f.Name == Created, f.Name == Ready: // they tell what is in structures of which nothing is known
			r = NeedsModule
		case IsRuntime(f.Name) && !Tells(f.Name): // which of them signal handlers call is not known
			r = Runtime
		}
	}
	if r == "" && o.Runtime && IsRuntime(f.Name) && !Tells(f.Name) {
		r = im.runtimeReason(f)
	}
	if r != "" {
		return moves.Moves{}, r
	}
	if im.machine == elf.EM_AARCH64 {
		return im.arm64Site(f)
	}
	b, r := im.body(f)
	if r != "" {
		return moves.Moves{}, r
	}
	if b.isWrapper() {
		return moves.Moves{}, Wrapper
	}
	if !im.Version.Module() {
		return b.alone()
	}
	m, why := b.Plan(true)
	return m, planned[why]
}

// planned are the reasons of package moves, as they are called here.
var planned = map[moves.Reason]Reason{
	moves.NoRoom: NoRoom, moves.ConditionalExit: ConditionalExit, moves.ScratchExit: ScratchExit,
	moves.LoopAtEntry: LoopAtEntry, moves.Undecodable: Undecodable,
}

// reason is that of a function as a whole.
func (f *Func) reason(o Options) Reason {
	switch {
	case f.isAsm():
		return Assembly
	case !f.Compiled():
		return External
	case isMeasured(f.Name):
		return Measured
	case !o.Runtime && IsRuntime(f.Name) && !Tells(f.Name):
		return Runtime
	}
	return ""
}

// Park is the function in which a goroutine waits, whatever for: it is called when there is nothing to do, and returns when
// the goroutine runs again. So of the runtime's functions it is looked at in any case.
const Park = "runtime.gopark"

// Created makes a goroutine, on the thread's own stack, and returns its runtime.g.
const Created = "runtime.newproc1"

// Ready makes a goroutine ready to run, which waits, on behalf of the one that the thread runs.
const Ready = "runtime.ready"

// Ended is what a goroutine ends with.
const Ended = "runtime.goexit1"

// Only returns at which ends of a function there are events.
func Only(name string) moves.Ends {
	switch name {
	case Created:
		return moves.OnlyExits
	case Ready, Ended:
		return moves.OnlyEntries
	}
	return moves.BothEnds
}

// Silent reports whether a function's calls are not recorded, but what they do.
func Silent(name string) bool { return name == Created || name == Ended }

// told are more functions of the runtime that are looked at in any case: a collection and its parts, what goroutines
// do for it, and where all are stopped and go on.
var told = map[string]bool{
	Park: true, Created: true, Ready: true, Ended: true,
	"runtime.GC": true, "runtime.gcStart": true, "runtime.gcMarkTermination": true, "runtime.gcDrain": true,
	"runtime.gcAssistAlloc": true, "runtime.stopTheWorldWithSema": true, "runtime.startTheWorldWithSema": true,
}

// Tells reports whether a function of the runtime tells what goroutines and the collector do.
func Tells(name string) bool { return told[name] }

// isMeasured tells the functions whose code the program itself computes a checksum of (FIPS 140).
func isMeasured(name string) bool {
	below, ok := strings.CutPrefix(Package(name), "crypto/internal/fips140")
	return ok && (below == "" || below[0] == '/')
}

// IsRuntime reports whether a function is the runtime's own, or was made by the linker: what it does is no part of what
// a program says that it does.
func IsRuntime(name string) bool {
	switch p := Package(name); p {
	case "", "runtime", "internal/abi", "internal/bytealg", "internal/chacha8rand", "internal/cpu", "internal/goarch",
		"internal/goos", "internal/race", "internal/msan", "internal/asan", "type:", "go:":
		return true
	default:
		return strings.HasPrefix(p, "runtime/internal/") || strings.HasPrefix(p, "internal/runtime/")
	}
}

// Own reports whether a package is the program's own: package main, and those of the main module. The standard library,
// whose packages have no name in common, is the main module of its tests, which have package main.
func (im *Image) Own(pkg string) bool { return Own(im.Main, pkg) }

// Own is [Image.Own] for a main module, whose path may be unknown.
func Own(module, pkg string) bool {
	if pkg == "main" {
		return true
	}
	below, ok := strings.CutPrefix(pkg, module)
	return ok && module != "" && (below == "" || below[0] == '/' || below == "_test")
}

// Package returns the package that a function belongs to, by its name: net/http for net/http.(*conn).serve. Functions
// that the linker has made are those of type: and go:, others without a package of "".
func Package(name string) string {
	for _, p := range []string{"type:", "go:"} {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	path, _, _ := strings.Cut(name, "[") // type arguments have paths of their own
	slash := strings.LastIndexByte(path, '/') + 1
	dot := strings.IndexByte(path[slash:], '.')
	if dot < 0 {
		return ""
	}
	return unescape(path[:slash+dot])
}

// PrintedName returns a function's name as Go prints it: what the types of a generic function's instance have in common
// (go.shape) is left out, so Map[go.shape.int] is Map[...].
func PrintedName(name string) string {
	i, j := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']')
	if i < 0 || j <= i {
		return name
	}
	return name[:i] + "[...]" + name[j+1:]
}

// unescape undoes what the linker does with characters that its names must not have: %2e is a dot.
func unescape(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			hi, lo := strings.IndexByte(hex, path[i+1]), strings.IndexByte(hex, path[i+2])
			if hi >= 0 && lo >= 0 {
				b.WriteByte(byte(hi<<4 | lo))
				i += 2
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

const hex = "0123456789abcdef"
