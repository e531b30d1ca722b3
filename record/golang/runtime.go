package golang

import (
	"debug/elf"
	"strings"

	"github.com/fentry-dev/fentry/arch/amd64"
	"github.com/fentry-dev/fentry/arch/arm64"
)

// The runtime's own functions, on request.
//
// They run on goroutines, on the stack that each thread has for itself (g0) and on that of its signal handlers, and events
// of all of these are told apart by the number of what r14 says is the goroutine, which is 0 for the latter two. So nearly
// all can be traced. Not those that leave a stack for good, such as the scheduler's, which goes on with a goroutine: they
// begin and never end. They are found by whom they call: what switches to a goroutine (gogo), what calls that, and so on;
// calls that switch to a thread's own stack are made through a value, and end this. And not what a signal handler does
// before r14 says that it is one.
//
// With C code in the program there are threads without a goroutine, and signals that come to them, so there the runtime is
// left alone.

// gogo is what goes on with a goroutine; it is in assembly.
const gogo = "runtime.gogo"

// inHandler tells the functions that a signal handler calls while r14 is the goroutine that it has interrupted.
func inHandler(name string) bool {
	switch name {
	case "runtime.sigtrampgo", "runtime.sigfwdgo", "runtime.sigFetchG", "runtime.signalDuringFork", "runtime.sigprofNonGo",
		"runtime.sigprofNonGoPC", "runtime.badsignal", "runtime.raisebadsignal", "runtime.callCgoSigaction",
		"runtime.inVDSOPage":
		return true
	}
	return strings.HasPrefix(name, "runtime.(*sigctxt).")
}

// runtimeReason is why a function of the runtime is left alone although the runtime is asked for.
func (im *Image) runtimeReason(f *Func) Reason {
	im.switchesOnce.Do(im.findSwitches)
	switch {
	case im.cgo:
		return Runtime
	case inHandler(f.Name):
		return Handler
	case im.switches[f.Entry]:
		return Switches
	}
	return ""
}

// findSwitches finds the functions that go on with a goroutine.
func (im *Image) findSwitches() {
	callers := map[uint64][]uint64{} // of each function of the runtime, by entries
	var todo []uint64
	for i := range im.Funcs {
		f := &im.Funcs[i]
		if f.Name == gogo {
			todo = append(todo, f.Entry)
		}
		if Package(f.Name) == "runtime" && !f.isAsm() { // all call what makes stacks larger, which changes them itself
			im.eachCall(f, func(to uint64) { callers[to] = append(callers[to], f.Entry) })
		}
	}
	im.switches = map[uint64]bool{}
	for len(todo) > 0 {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, c := range callers[last] {
			if !im.switches[c] {
				im.switches[c] = true
				todo = append(todo, c)
			}
		}
	}
}

// eachCall calls fn with the functions that one calls or jumps to.
func (im *Image) eachCall(f *Func, fn func(to uint64)) {
	code := im.text[f.Entry-im.TextStart : f.Next-im.TextStart]
	for o := 0; o < len(code); {
		n, to := im.called(code[o:], f.Entry+uint64(o))
		if n == 0 {
			return
		}
		if to != 0 && (to < f.Entry || to >= f.Next) {
			fn(to)
		}
		o += n
	}
}

// called returns how long the instruction at the beginning of code is, 0: it is none, and where it calls or jumps to, 0:
// it does not.
func (im *Image) called(code []byte, pc uint64) (n int, to uint64) {
	if im.machine == elf.EM_AARCH64 {
		in, err := arm64.Decode(code)
		if err != nil {
			return 0, 0
		}
		if in.Op == arm64.Call || in.Op == arm64.Jmp {
			to = in.Target(pc)
		}
		return in.Len, to
	}
	in, err := amd64.Decode(code)
	if err != nil {
		return 0, 0
	}
	if in.Op == amd64.Call || in.Op == amd64.Jmp {
		to = in.Target(pc)
	}
	return in.Len, to
}
