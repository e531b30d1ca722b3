// Package runfile writes programs that are to be run by the process that wrote
// them, as tests do.
package runfile

import (
	"os"
	"syscall"
)

// WriteFile writes a program that anybody may run to file name, replacing what it
// has. The program can be run as soon as WriteFile returns, whatever else the process
// does: a child that another goroutine forked while the file was open would have
// it open for writing until its own exec, and the kernel refuses to run
// such files (ETXTBSY). So nothing is forked meanwhile.
func WriteFile(name string, data []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(name, data, 0o755)
}
