// Package perf has the kernel tell of the threads of a process, and of all that it starts, through perf events. It knows
// how records come, and nothing about what they say.
package perf
