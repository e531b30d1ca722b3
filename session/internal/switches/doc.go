// Package switches knows when the threads of a session were off a processor, from the kernel's own record of its task
// switches. It knows nothing about functions, nor about the pool.
package switches
