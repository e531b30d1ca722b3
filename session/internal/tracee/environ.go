//go:build linux

package tracee

import "errors"

// ReplaceEnv writes a setting of the environment over another one of a process that has not run yet. The new one may
// be shorter, but not longer.
func (t *Process) ReplaceEnv(old, with string) error {
	if len(with) > len(old) {
		return errors.New("environment: the new setting is longer")
	}
	regs, err := t.registers()
	if err != nil {
		return &RefusedError{err}
	}
	word := func(i uint64) (uint64, error) {
		var b [8]byte
		err := t.ReadAt(b[:], regs.sp()+8*i)
		return le.Uint64(b[:]), err
	}
	argc, err := word(0)
	if err != nil {
		return err
	}
	const limit = 1 << 20 // pointers to settings; the strings behind them take at most 6 MiB (fs/exec.c)
	have := make([]byte, len(old)+1)
	for i := range uint64(limit) {
		at, err := word(argc + 2 + i)
		if err != nil {
			return err
		}
		if at == 0 {
			break
		}
		// The last strings of the stack are not followed by as many bytes.
		if t.ReadAt(have, at) == nil && string(have) == old+"\x00" {
			return t.WriteAt(append([]byte(with), make([]byte, len(old)-len(with))...), at)
		}
	}
	return errors.New("environment: the setting is not there")
}
