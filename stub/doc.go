// Package stub has the runtime that goes inside traced programs.
//
// The runtime is C and assembly in the directory src, built into one relocatable
// object per machine, which is embedded here:
//
//	obj, err := stub.Object(elf.EM_X86_64)
//	// link obj into the program's image, encode a thunk for every site, then:
//	image := stub.Image{ID: id, Sites: n, Address: addr, Thunks: thunks - addr, Switches: switches - addr, Path: path}
//	b, err := image.MarshalBinary() // the contents of fentry_image, which is at addr
//	config := stub.Config{Mode: stub.ModeGraph}
//	b, err = config.MarshalBinary() // the contents of fentry_config
//
// # Layers
//
// The C files stand in layers, and a file uses only what is below it (TestLayers has
// the list). From the ground up:
//
//	text, config, say, process, wipe   strings, configuration, messages, /proc, fork
//	image                              the images whose functions are traced, and their switches
//	source, pool, file, directory      where chunks come from: a recorder, or a file
//	chunk, profile                     events and counts, in chunks
//	blocks, stack, frame               control blocks, stacks, open calls
//	thread                             the running thread, new or forked
//	session, announce, start           finding a place for the trace, once a process
//	slow, home                         where fast paths come to, and other images
//	graph, func, opt, profile (.S)     the fast paths, which thunks call
//
// So what an event passes on its way to memory is never entered again on that way. Only
// the highest layer asks whether the runtime has started.
//
// # How a call is traced
//
// A site jumps to its thunk (arch/amd64, arch/arm64). The thunk calls enter, takes the
// caller's return address off the stack, calls the rest of the function, and
// goes through exit back to the caller, so that every return goes where its call
// was: the processor's return predictor and hardware shadow stacks agree. The
// traced function finds its stack arguments where they always were, and every
// general register as its caller left it.
//
// The caller's return address is kept in shadow memory at a fixed distance from
// the stack slot S it was in: at S with bit 46 flipped. Finding it needs no
// search and no state, so longjmp, exceptions, coroutines and signal handlers
// cannot break control flow. A second word, bits 46 and 45 flipped, links the
// open frames to a chain; it serves to notice frames that ended without an exit.
// Stacks have to lie below 1<<47 and where the flipped addresses are free, which
// is so for what Linux hands out; where it is not, functions run untraced on that
// stack and are counted as lost.
//
// On arm64, where the return address is in x30, the 16 bytes below the stack pointer
// at the call are a frame's slot, and the two words stand side by side in one
// shadow. Bit 46 is flipped for stacks from 1<<42 on, and 37 below, so that any size
// of the address space is served.
//
// Events are 8 bytes in a chunk of the thread's own, reserved with one
// instruction, on arm64 with ldxr and stxr. Fast paths take no lock and make no system call; nothing uses a libc
// or vector registers.
//
// The thread's control block is at the gs base. A new thread inherits its creator's
// and is told apart by its thread pointer. When a program turns out to use gs
// itself, or had threads before the runtime was there, blocks are found in a table
// by thread pointer from then on, and gs is left alone. On arm64 the block is at a
// word of thread-local memory, .tbss of the object: whoever links it into an
// executable makes room for it at the end of PT_TLS (link.Options.TLS). A new
// thread has 0 there. So shared objects cannot have the runtime on arm64.
//
// Each function has a byte, which its thunk tests: bit 0 set means that its calls are
// traced. The runtime sets it in all functions when it has started, and clears it when
// tracing ends; in memory that is still zero, everything is off. Calls that are open
// when their function is switched off are closed by their exits as ever.
//
// # Several images
//
// There is one runtime in a process, the home. [GuestObject] is for other images of the
// process, shared objects: it has fast paths, which work on the home's control blocks,
// and whose slow paths are jumps to the home, whose structure (src/home.h) is at a fixed
// address. Each image has a range of ids, which are unique in the trace, switches, and
// a place in the table by which slow paths find a function by its thunk. On arm64
// only the executable can be traced, as others cannot use its thread-local word.
//
// # Programs linked with the runtime
//
// [Library] is the same runtime for programs that are compiled with -pg and linked
// with it: in place of thunks it has mcount, __fentry__ and return_to_handler, and
// the trampolines and callbacks of the kernel's tracers, which [Header] declares. On
// arm64 it is _mcount, and the trampolines are for the sites of
// -fpatchable-function-entry=2 that arch/arm64 rewrites.
//
// # What is not traced right
//
//   - A function that looks at its own return address (__builtin_return_address)
//     sees its thunk.
//   - Coroutines that copy their stacks to and fro at one address (shared stacks)
//     copy return addresses without their shadow and must not be traced.
//   - A program that sets the gs base to an address that cannot be read, before it
//     is known to use gs, faults at its next traced call.
//   - On arm64, a function that calls another one without having moved the stack
//     pointer, its return address in a register: both have the same slot. Compilers
//     make no such code; where assembly does, one of the two must not be traced.
//   - On arm64, a program that gives threads a thread pointer to memory of its own,
//     which is not laid out as PT_TLS says, is not to be traced.
//   - Under an emulator of user programs that ignores MADV_WIPEONFORK, such as
//     qemu-user, a child is told from its parent by the thread's id that libcs keep
//     (arm64 only): one made by a clone of the program's own is not, and writes into
//     its parent's chunk. The same goes for what vfork's child records where vfork is
//     a fork.
//   - Without a recorder, or with one that overwrites, a signal handler that records
//     gigabytes, or rounds of the buffer, before it returns into the middle of the
//     recording of an event can cost that event's place another one. (Recorders
//     hold a chunk in which a slot is reserved and not written.)
//   - Strict seccomp, and PR_TSC_SIGSEGV, forbid the program to read the time stamp
//     counter: it is killed at its next traced call.
//   - A seccomp filter that kills on mmap, madvise, futex, gettid, prctl or
//     rt_sigprocmask kills the program when the runtime uses them.
package stub
