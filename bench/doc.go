// Command bench measures what tracing costs and prints tables of ratios; make bench runs it.
//
//	go run ./bench                     everything, about ten minutes
//	go run ./bench -only call,programs some tables
//	go run ./bench -rounds 9           more rounds
//
// The variants of one table are run in turn, round after round, so that what else the machine does hits them alike; a
// cell is the median of the rounds, the minimum beside it. CPU time is the kernel's count for the process (and its
// children, where a recorder helps), not wall time. Peers (uftrace, XRay, gprof, -finstrument-functions) are measured
// in the same rounds when they are installed and named when they are not.
//
//	call      call and return of an empty function, against two reads of the time stamp counter in the same process;
//	          tracers against each other, whole and net (traced less untraced)
//	instructions
//	          what tracing adds to a call on amd64 (callgrind) and arm64 (qemu), exactly
//	off       a call of one of 1 to 50,000 functions that are patched and switched off
//	walk      the stack at a call, taken and written: time and instructions for each frame of it
//	args      arguments and results of a call, captured: time and instructions more than without
//	syscalls  a system call of C and of Go, recorded and left out, and whole runs of programs that make many, against strace
//	          and perf trace
//	programs  whole runs of Lua and SQLite with all functions traced to disk
//	installed python, perl, g++, clang++, cmake and git as they are installed, with all functions and with record's default
//	          bound
//	go        programs of Go: a call, requests of an HTTP server and of a large one, collections, profiles
//	patch     fentry patch of large executables, against copying them: nothing but code, mostly debug information,
//	          and the program FENTRY_BENCH_PROGRAM names
//	read      report and replay of a large trace
//	export    the same trace in each format: speed, and memory against the size of the trace
//	view      the page of a trace, asked as a browser asks: until it is open, zooms, pans, jumps, tables; -trace DIR:
//	          of a trace that is there
//	mcount    tables of call sites in objects, against recordmcount: time, and memory against the size of the object
package main
