// Package tracedir makes trace directories, moves older ones out of the way, and
// writes the files beside the events.
//
// A directory that holds anything but a trace is never renamed or removed, nor is
// one that is being recorded.
package tracedir
