// Package stub contains the runtime that runs inside traced programs.
//
// The runtime is C and assembly in the directory src, built into one embedded relocatable object per machine:
//
//	obj, err := stub.Object(elf.EM_X86_64)
//	// link obj into the program's image, encode a thunk for every site, then:
//	image := stub.Image{
//		ID: id, Sites: n, Address: addr, Thunks: thunks - addr, Switches: switches - addr, Path: path,
//	}
//	b, err := image.MarshalBinary() // the contents of fentry_image, which is at addr
//	config := stub.Config{Mode: stub.ModeGraph}
//	b, err = config.MarshalBinary() // the contents of fentry_config
//
// # Layers
//
// The C files form layers, and a file uses only what is below it (TestLayers has the list). From the bottom up:
//
//	text, config, filter, say, process, wipe
//	                                   strings, configuration, system calls, messages, /proc, fork
//	image                              the images whose functions are traced, and their switches
//	source, pool, file, directory      where chunks come from: a recorder, or a file
//	chunk, profile                     events and counts, in chunks
//	blocks, stack, frame               control blocks, stacks, open calls
//	thread                             the running thread, new or forked
//	session, announce, start           finding a place for the trace, once a process
//	slow, goroutine, home              where fast paths come to, and other images
//	graph, order, func, opt, profile, count (.S)  the fast paths, which thunks call
//
// So the code that writes an event is never re-entered while it does so. Only the highest layer checks whether the
// runtime has started.
//
// # How a call is traced
//
// A site jumps to its thunk (arch/amd64, arch/arm64). The thunk calls enter, which on x86-64 knows by the way back which
// thunk it is. Then the caller's return address is off the stack, and the thunk calls the rest of the function, and
// returns through exit to the caller, so that every return matches its call: the processor's return predictor and
// hardware shadow stacks agree. The traced function finds its stack arguments in their usual places, and every general
// register as its caller left it.
//
// The caller's return address is kept in shadow memory at a fixed distance from the stack slot S it was in: at S with
// bit 46 flipped. Finding it needs no search and no state, so longjmp, exceptions, coroutines and signal handlers
// cannot break control flow. A second word, at S with bits 46 and 45 flipped, links the open frames into a chain, by
// which frames that ended without an exit are noticed. Stacks must be below 1<<47 and the flipped addresses free, as
// they are for stacks that Linux allocates; otherwise functions run untraced on that stack and are counted as lost.
//
// On arm64, where the return address is in x30, a frame's slot is the 16 bytes below the stack pointer at the call,
// and the two words are side by side in one shadow. Bit 46 is flipped for stacks from 1<<42 on, and bit 37 for those
// below, which suits any size of the address space.
//
// Events are 8 bytes in a chunk of the thread's own, reserved by one instruction, on arm64 by ldxr and stxr. Fast
// paths take no locks and make no system calls; nothing uses a libc or vector registers.
//
// The thread's control block is at the gs base. A new thread inherits its creator's and is told apart by its thread
// pointer. If a program turns out to use gs itself, or had threads before the runtime started, blocks are from then
// on looked up in a table by thread pointer, and gs is left alone. On arm64 a word of thread-local memory, .tbss of
// the object, points to the block: whoever links the object into an executable makes room for it at the end of PT_TLS
// (link.Options.TLS). In a new thread it is 0. Shared objects have another runtime there ([SharedObject]), which looks
// blocks up in the table.
//
// Each function has a byte, which its thunk tests: if bit 0 is set, its calls are traced. The runtime sets it for all
// functions once it has started, and clears it when tracing ends; in memory that is still zero, everything is off.
// Calls that are open when their function is switched off still end with their exits.
//
// # Several images
//
// A process has one runtime, the home: that of the image that starts first. Others, which have the same object in them,
// join it: their fast paths work on the home's control blocks, and their slow paths are the home's. How they find it is
// in src/home.c. Each image has a range of ids, which are unique in the trace, its switches, and an entry in the table by
// which slow paths find a function from its thunk. The home must stay loaded. An image that has joined it can go if its
// DT_INIT and DT_FINI lead to fentry_init_* and fentry_fini_*, and fentry_image says so (src/life.c).
//
// A program starts at fentry_start. A shared object starts where the dynamic loader calls it first: fentry_irel is the
// resolver of a relocation of type IRELATIVE; fentry_init_first, which goes on to fentry_orig_entry, or
// fentry_init_only can be its DT_INIT, and fentry_fini_first, which goes on to fentry_orig_fini, or fentry_fini_only its
// DT_FINI.
//
// An image that is refused runs untraced, with a message: its switches stay off. Refused is an image whose thunks call
// routines for another mode, or for other options (depth, threshold, graph roots), than the home was configured for; and,
// in the modes profile and count, one for whose tables control blocks have no room, that is after 97 others.
//
// If the address of the home's page is taken, the process has no guests either.
//
// # Programs linked with the runtime
//
// [Library] is the same runtime for programs compiled with -pg and linked with it: in place of thunks it has mcount,
// __fentry__ and return_to_handler, and the trampolines and callbacks of the kernel's tracers, which [Header]
// declares. On arm64 it is _mcount, and the trampolines are for the sites of -fpatchable-function-entry=2 that
// arch/arm64 rewrites.
//
// # What is not traced correctly
//
//   - A function that looks at its own return address (__builtin_return_address)
//     sees its thunk.
//   - Coroutines that copy their stacks to and from one address (shared stacks) copy return addresses without their
//     shadow and must not be traced.
//   - A program that sets the gs base to an unreadable address before it is known to use gs faults at its next traced
//     call.
//   - On arm64, a function that keeps its return address in a register and calls another function without having
//     moved the stack pointer: both have the same slot. Compilers generate no such code; where assembly does, one of
//     the two must not be traced.
//   - On arm64, a program that points a thread pointer to memory of its own that is not laid out as PT_TLS says must
//     not be traced.
//   - Under an emulator of user programs that ignores MADV_WIPEONFORK, such as qemu-user, a child is told from its
//     parent by the thread id that libcs store (arm64 only): one made by the program's own clone is not, and writes
//     into its parent's chunk. So does vfork's child where vfork is a fork.
//   - Without a recorder, or with one that overwrites, a signal handler that interrupts the recording of an event and
//     itself records gigabytes, or several times the buffer, can cause that event to overwrite another one.
//     (Recorders hold a chunk in which a slot is reserved but not written.)
//   - Strict seccomp and PR_TSC_SIGSEGV forbid a program to read the time stamp counter: it is killed at its next
//     traced call.
//   - A seccomp filter that kills on mmap, madvise, futex, gettid, prctl or
//     rt_sigprocmask kills the program when the runtime uses them, if it has not seen the filter come (filter.c):
//     it does by a recorder's jumps, and where system calls are recorded.
package stub
