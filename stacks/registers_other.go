//go:build linux && !amd64 && !arm64

package stacks

import "errors"

func stoppedRegisters(int) (registers, error) { return registers{}, errors.ErrUnsupported }
