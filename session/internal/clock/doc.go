// Package clock reads the counter that runtimes stamp events with, and the clocks
// that readers of a trace relate it to.
//
// Files ending in a machine's name are about the machine this runs on: the
// recorder and the programs it traces share its counter.
package clock
