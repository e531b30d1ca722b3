//go:build linux

// Package tracefs shows a recording of processes that run as the kernel shows its own: as a file system with the files of
// /sys/kernel/tracing, and with their meaning.
//
//	m, err := tracefs.Mount("/mnt", target, tracefs.Options{Name: "server"})
//	if err != nil {
//		return err
//	}
//	defer m.Unmount()
//	m.Wait()      // until somebody unmounts it
//
// What is recorded belongs to a [Target]; this package has the rest: filters, tracers, triggers, instances.
//
// # How it works
//
// The target keeps the newest events in a buffer, and can be asked for a copy of it at any time. There is no other state
// of events here: a read of trace is a copy of the buffer, in the kernel's text. What an instance has been set to, and
// when, is a list of epochs, so an event is shown as its epoch says, however late it is read; reading trace_pipe moves a
// mark for each thread behind which it looks. Functions are switched on in the processes that some instance needs.
// Triggers are looked for in the events, in the order of time, before anything is read or changed.
//
// docs/tracefs.md says which files there are, and what is not as in the kernel.
//
// # Security
//
// The files belong to the user who mounts them, and nobody else can reach them, root neither: that is FUSE's rule. Names of
// functions and threads come from programs; they are shown as package safetext has them. What is written to a file is
// bounded, and is an error of the writer if it cannot be understood.
package tracefs
