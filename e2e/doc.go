// Package e2e tests the built fentry command against real programs, the way people use it.
//
// Each program in testdata counts its own calls (testdata/count.h), so a trace has a ground truth it must equal
// exactly:
//
//	build a fixture -> run it untraced: output, status, counters
//	                -> fentry record ./prog: the same output and status; trace == the counters of that very run
//	                -> fentry patch -o, run that file alone: likewise
//
// Directives in a fixture's comments say what is special about it:
//
//	//e2e:run ARG...         one traced run with these arguments each (default: one run with those of e2e:args)
//	//e2e:args ARG...        arguments
//	//e2e:stdin TEXT         standard input; \n is a newline
//	//e2e:cflags FLAG...     more flags for the compiler; e2e:link for the linker
//	//e2e:compilers NAME...  gcc or clang only; e2e:kinds NAME... only these kinds of sites
//	//e2e:machines NAME...   amd64 or arm64 only
//	//e2e:library NAME       an untraced shared library beside the program in lib/, found by $ORIGIN (dynamic links only)
//	//e2e:companion NAME     a second traced fixture beside the program, for exec
//	//e2e:needs WHAT...      what the machine must offer: root, avx, ptrace
//	//e2e:show FILE          the file's content counts as output
//	//e2e:comm NAME...       threads of these names must be in the trace
//	//e2e:may-lack NAME...   functions that may run before tracing can start, or KIND:NAME, which
//	                         cannot be traced with that kind of sites, or emulated:NAME, of which
//	                         qemu-user loses calls (see TestEmulatorLimits)
//	//e2e:may-lose ARG...     runs, by their argument, that leave the tracer no memory: events may
//	                         be lost if they are counted; emulated:ARG, in a program that writes its
//	                         trace under qemu-user, which cannot map memory again by mremap
//	//e2e:ignore *           there are traced functions without a counter: inline ones of the C++ library
//	//e2e:path same          the program looks at its own path
//
// The default run takes a bounded part of the matrix of site kinds, ways to link and optimisation; FENTRY_WIDE=1
// takes all of it. Real programs (Lua, SQLite, zstd, Redis) come from Debian's source packages into a cache, see
// source_test.go.
package e2e
