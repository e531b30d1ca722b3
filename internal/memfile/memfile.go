// Package memfile makes files in memory whose contents can be executed.
package memfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// New makes an empty file in memory. /proc/PID/maps shows name for it.
func New(name string) (*os.File, error) {
	// Kernels from 6.3 on want to be told that a memory file is for executing,
	// older ones do not know the flag.
	var err error
	for _, flags := range []int{unix.MFD_CLOEXEC | unix.MFD_EXEC, unix.MFD_CLOEXEC} {
		var fd int
		if fd, err = unix.MemfdCreate(name, flags); err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EINVAL {
			break
		}
	}
	return nil, fmt.Errorf("memfd_create: %w", err)
}
