//go:build linux && !amd64

package tracee

import (
	"errors"
	"runtime"
)

// hook: the runtime has no routine for this machine.
func (l *loader) hook(uint64) (enable func() error, err error) {
	return nil, errors.New("not on " + runtime.GOARCH + " yet")
}
