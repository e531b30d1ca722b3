package record

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fentry-dev/fentry/record/golang"
	"github.com/fentry-dev/fentry/record/plain"
)

// Reason says why a function cannot be traced. Codes are stable: they appear in plans, in JSON and in scripts.
type Reason string

// Reason codes. Reasons explains them in words.
const (
	ReasonNoSite         Reason = "no-site"
	ReasonColdPart       Reason = "cold-part"
	ReasonShortFunction  Reason = "short-function"
	ReasonShortSite      Reason = "short-site"
	ReasonRealignedFrame Reason = "realigned-frame"
	ReasonNoFramePointer Reason = "no-frame-pointer"
	ReasonSignedReturn   Reason = "signed-return"
	ReasonShadowStack    Reason = "shadow-call-stack"
	ReasonOutOfReach     Reason = "out-of-reach"
	ReasonCallMoves      Reason = "call-moves"
	ReasonTwoPages       Reason = "two-pages"
	ReasonJumpsAway      Reason = "jumps-away"
	ReasonBesideSyscall  Reason = "beside-syscall"
	ReasonNotAtEntry     Reason = "not-at-entry"
	ReasonUnknownEntry   Reason = "unknown-entry"
	ReasonJumpIntoSite   Reason = "jump-into-site"
	ReasonUnexpected     Reason = "unexpected-bytes"
	ReasonDuplicate      Reason = "duplicate-site"
	ReasonOtherCallee    Reason = "other-callee"
	ReasonNotExecutable  Reason = "not-executable"
	ReasonEntryPoint     Reason = "entry-point"
	ReasonIfuncResolver  Reason = "ifunc-resolver"
	ReasonReturnsTwice          = Reason(plain.ReturnsTwice)
	ReasonSignalReturn   Reason = "signal-return"
	ReasonProfiler       Reason = "profiler"
	ReasonRuntime        Reason = "fentry-runtime"
	ReasonXRayExit       Reason = "xray-exit"
	ReasonPatched        Reason = "already-patched"
	ReasonLooksAtCaller  Reason = "looks-at-caller"
	ReasonMovedByBOLT    Reason = "moved-by-bolt"
	ReasonStackMark      Reason = "stack-mark"

	ReasonOnlyJumpedTo  = Reason(plain.OnlyJumpedTo)
	ReasonLoader        = Reason(plain.Loader)
	ReasonGoImage       = Reason(plain.GoImage)
	ReasonStackWalker   = Reason(plain.StackWalker)
	ReasonMeasured      = Reason(plain.Measured)
	ReasonNoUnwindInfo  = Reason(plain.NoUnwindInfo)
	ReasonUnusualUnwind = Reason(plain.UnusualUnwind)
	ReasonReadsReturn   = Reason(plain.ReadsReturn)
	ReasonFlagsLive     = Reason(plain.FlagsLive)
	ReasonLoopAtEntry   = Reason(plain.LoopAtEntry)
	ReasonCallAtEntry   = Reason(plain.CallAtEntry)
	ReasonSystemCall    = Reason(plain.SystemCall)
	ReasonUndecodable   = Reason(plain.Undecodable)
	ReasonExclusive     = Reason(plain.Exclusive)
	ReasonTextReloc     = Reason(plain.TextReloc)
	ReasonAddressTaken  = Reason(plain.AddressTaken)
	ReasonOCamlRuntime  = Reason(plain.OCamlRuntime)
	ReasonOCamlNoRoom   = Reason(plain.OCamlNoRoom)

	ReasonGoAssembly = Reason(golang.Assembly)
	ReasonGoRuntime  = Reason(golang.Runtime)
	ReasonGoExternal = Reason(golang.External)
	ReasonGoWrapper  = Reason(golang.Wrapper)
	ReasonGoMeasured = Reason(golang.Measured)
	ReasonGoNoRoom   = Reason(golang.NoRoom)
	ReasonGoCondExit = Reason(golang.ConditionalExit)
	ReasonGoScratch  = Reason(golang.ScratchExit)
	ReasonGoSwitches = Reason(golang.Switches)
	ReasonGoHandler  = Reason(golang.Handler)
	ReasonGoModule   = Reason(golang.NeedsModule)
	ReasonGoChecks   = Reason(golang.Unchecked)

	ReasonGoC Reason = "go-c-code"

	ReasonInPlace Reason = "recorded-in-place"
)

// ReasonText is a reason code with its explanation.
type ReasonText struct {
	Code Reason
	Text string
}

// Reasons lists every reason code that a Site can have, each with a sentence of explanation, in the order in which
// documentation shows them.
func Reasons() []ReasonText {
	return []ReasonText{
		{ReasonNoSite,
			"The compiler left no call, nops or sled at the function's entry: it was compiled without -pg, " +
				"-fpatchable-function-entry or -fxray-instrument, or with an attribute that turns them off."},
		{ReasonColdPart,
			"This is a part of another function that the compiler moved away (.cold), as its name or unwind table shows; " +
				"only jumps enter it."},
		{ReasonShortFunction,
			"The function ends before there is room for a jump, and for a short one there is no padding near by, where it could go."},
		{ReasonShortSite,
			"Too few bytes are free at the entry for a jump: -fpatchable-function-entry=N,M requires N-M >= 5 on x86-64, " +
				">= 1 on arm64. --plain adds the function by moving its first instructions, as is done for programs " +
				"in which nothing else can be traced."},
		{ReasonRealignedFrame,
			"The function realigns its stack before it saves the frame pointer; 8(%rbp) holds a copy of the return " +
				"address there, not the return address itself."},
		{ReasonNoFramePointer,
			"The call of mcount is not preceded by push %rbp; mov %rsp,%rbp (arm64: by saving x29 and x30 and pointing " +
				"x29 there), so where the return address is cannot be known."},
		{ReasonSignedReturn,
			"The function signs its return address before it calls mcount (-mbranch-protection=pac-ret): only its entry " +
				"can be recorded, which requires the function tracer; -fpatchable-function-entry=2 has no such limit."},
		{ReasonShadowStack, "The function keeps its return address on a shadow call stack (-fsanitize=shadow-call-stack)."},
		{ReasonOutOfReach,
			"What is added to the image is more than 128 MiB away, which branches of arm64 do not reach, and there is no " +
				"room for a veneer near the function: -fpatchable-function-entry=4 makes room."},
		{ReasonCallMoves,
			"Only in a program that runs already (record -p): the function begins with a call, which would have to be moved, " +
				"and what it returns to would be gone when fentry detaches."},
		{ReasonTwoPages,
			"Only in a program that runs already (record -p): a jump in place of its first instructions would begin in one " +
				"page of memory and end in another. These are not written at once, so the program could not go on if fentry " +
				"was killed meanwhile."},
		{ReasonJumpsAway,
			"Only in a program that runs already (record -p) and has exceptions, if its unwinder does not ask glibc where it finds " +
				"what (glibc 2.35 and gcc 12, or later, do): the function may end by a jump to one of another image, or is a library's " +
				"whose calls are recorded (--libcalls). Exceptions from there would not find its caller; with -T function it is recorded."},
		{ReasonBesideSyscall,
			"Only in a program that runs already (record -p), if its unwinder does not ask glibc where it finds what: the function is " +
				"called right before or behind a system call, where the C library has threads cancelled at any instruction, and their " +
				"destructors found by where that was."},
		{ReasonNotAtEntry, "The profiling call is not at the function's entry."},
		{ReasonUnknownEntry,
			"Where the function begins cannot be proven: the image has neither symbols nor unwind tables for it."},
		{ReasonJumpIntoSite,
			"A branch, a jump table or an unwinder goes to the middle of the site, or code before the function runs on into " +
				"it."},
		{ReasonUnexpected,
			"A table lists the place, but the bytes there are neither the call, the nops nor the sled it should hold."},
		{ReasonDuplicate, "The function has a better site; only one per function is used."},
		{ReasonOtherCallee, "__mcount_loc lists a call that does not go to a profiling function."},
		{ReasonNotExecutable, "The symbol or table entry lies outside executable, file-backed code."},
		{ReasonEntryPoint,
			"The program starts here: there is no return address. Or this is the call that runs all of it (__libc_start_main)."},
		{ReasonIfuncResolver,
			"The function chooses an implementation while the image is being relocated, before a thread or its runtime " +
				"exists."},
		{ReasonReturnsTwice,
			"setjmp, vfork, getcontext and their like return more than once through the same return address."},
		{ReasonSignalReturn, "The kernel or unwinders recognise this function by its bytes (__restore_rt)."},
		{ReasonLoader,
			"The dynamic linker enters this function with registers that carry more than the calling convention says, or it " +
				"is the dynamic linker's own."},
		{ReasonProfiler, "This is the profiling function itself, or part of it."},
		{ReasonRuntime, "The function belongs to the runtime that fentry put into the image."},
		{ReasonPatched, "fentry has already put its own jump there; undo the patch first."},
		{ReasonMovedByBOLT,
			"BOLT has written the function anew elsewhere in the image; this is what it was before, and is not executed."},
		{ReasonLooksAtCaller,
			"The library's function finds out by its return address who calls it (dlopen, dlsym, dl_iterate_phdr, backtrace, " +
				"_Unwind_*)."},
		{ReasonXRayExit, "An exit sled; the entry sled of the same function is enough."},
		{ReasonOnlyJumpedTo,
			"Nothing calls it or has its address, and how it is jumped to shows a part of a function that the compiler has " +
				"moved away; or that cannot be ruled out."},
		{ReasonGoImage,
			"The image is Go's, whose runtime knows all code and all stack frames, and stops at others. Programs that Go 1.21 " +
				"to 1.27 have linked are traced (record/golang)."},
		{ReasonStackWalker,
			"The image has a runtime that looks up return addresses in tables of its own, such as V8's, HotSpot's, " +
				"GraalVM's, Dart's or .NET's; or the function is OCaml's, whose runtime does so."},
		{ReasonMeasured,
			"The image has BoringSSL's cryptographic module (FIPS 140), which computes a checksum of its code and ends the " +
				"program if that has changed."},
		{ReasonStackMark,
			"Rust looks for this function's name on the stack, to show of a panic's what is of interest, and would not find it, " +
				"as a call has to move."},
		{ReasonNoUnwindInfo,
			"The function has no unwind information, and what it does with its stack is not understood, so it cannot be " +
				"known whether it uses its return address."},
		{ReasonUnusualUnwind,
			"Its unwind information is not that of a function that a call enters, is malformed, or changes in the middle of " +
				"an instruction."},
		{ReasonReadsReturn,
			"The function reads or changes its return address, or returns with ret $n, which removes arguments."},
		{ReasonFlagsLive,
			"The function may use flags that its caller has set, or its caller those that it leaves; on arm64 also what is in " +
				"x16 and x17."},
		{ReasonLoopAtEntry,
			"A loop goes back to the function's first instruction while something is on the stack, or below it."},
		{ReasonCallAtEntry,
			"A call would have to move by which the function finds its own address, or which is of a function that uses its " +
				"return address, or whose exception handlers are in tables that cannot be read."},
		{ReasonSystemCall,
			"A system call or a trap would have to move: the kernel and signal handlers look at where it is."},
		{ReasonUndecodable, "Some of its bytes are no known instructions."},
		{ReasonExclusive,
			"It begins with an exclusive load or store (ldxr, stxr), which have to stay side by side."},
		{ReasonTextReloc,
			"The dynamic linker changes what would have to move (DT_TEXTREL)."},
		{ReasonAddressTaken,
			"The function makes system calls at which threads can be cancelled, and a signal handler finds out from the " +
				"program counter how far it has come."},
		{ReasonOCamlRuntime, "OCaml's runtime in assembly, which goes from OCaml's code to C's and back."},
		{ReasonOCamlNoRoom,
			"One of the ends of OCaml's function has no room for a jump, nor is there any near by at which unwinders see no " +
				"difference; or what would have to move is the first to touch the stack, which OCaml catches where it ends."},
		{ReasonInPlace,
			"The function is OCaml's, which is recorded at its own instructions: not in a program that runs already (record -p), " +
				"nor by function,function_graph, nor if it is added while the program runs."},
		{ReasonGoAssembly, "A Go program's function in assembly, which may use registers as it likes."},
		{ReasonGoRuntime,
			"The function is of Go's runtime, or the linker has made it (--runtime; not in programs with C code, nor where only " +
				"the program's code says what its runtime is like)."},
		{ReasonGoExternal, "No function: a mark of Go's linker between sections of code."},
		{ReasonGoC, "A C function of a Go program that was built with -race, -msan or -asan."},
		{ReasonGoWrapper,
			"Go's linker has put this function between assembly and a function of the same name, which is traced."},
		{ReasonGoMeasured, "The program computes a checksum of this code (crypto/internal/fips140)."},
		{ReasonGoNoRoom,
			"One of the function's ends has no room for a jump, nor is there any near by at which Go's runtime sees no " +
				"difference."},
		{ReasonGoCondExit, "The function ends by a conditional jump to another one."},
		{ReasonGoSwitches, "The function of Go's runtime goes on with another goroutine, and does not return (--runtime)."},
		{ReasonGoHandler, "The function of Go's runtime is called by a signal handler before that can be told (--runtime)."},
		{ReasonGoScratch, "The function ends by a jump through a register that recording needs."},
		{ReasonGoModule,
			"The version of Go is none that was tried, and the program does not describe its runtime, so that cannot be told of " +
				"moved code; and of this function instructions would have to move that can fault, call or go round."},
		{ReasonGoChecks,
			"The version of Go is none that was tried, and the program does not describe its runtime, so a goroutine cannot be " +
				"stopped in moved code; and this function does not look for room on the stack, which is where it stops otherwise."},
	}
}

// Part reports whether what has the reason is a part of a function, and none that is called.
func (r Reason) Part() bool { return r == ReasonColdPart || r == ReasonOnlyJumpedTo }

// ByNumber returns the reasons of functions, of which n says how many have which: most frequent first, without those of parts.
func ByNumber(n map[Reason]uint64) []Reason {
	reasons := slices.DeleteFunc(slices.Collect(maps.Keys(n)), Reason.Part)
	slices.SortFunc(reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(n[b], n[a]), cmp.Compare(a, b)) })
	return reasons
}

// Text returns the explanation of the code, or "" if it is unknown or empty.
func (r Reason) Text() string {
	for _, t := range Reasons() {
		if t.Code == r {
			return t.Text
		}
	}
	return ""
}
