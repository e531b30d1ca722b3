// Package limits knows how much memory the process can have, where that is less than the
// machine has. It knows nothing about what the memory is for.
package limits
