//go:build linux

package tracee

import (
	"errors"
	"fmt"
)

// auxEntry is a value of the auxiliary vector and where it is.
type auxEntry struct{ val, addr uint64 }

// start returns what a process has that has not run yet: its registers and its auxiliary vector.
func (t *Process) start() (*registers, map[uint64]auxEntry, error) {
	regs, err := t.registers()
	if err != nil {
		return nil, nil, &RefusedError{err}
	}
	if t.parked != nil {
		*regs = *t.parked.regs
	}
	aux, err := t.auxv(regs.sp())
	if err != nil {
		return nil, nil, &RefusedError{err}
	}
	return regs, aux, nil
}

// auxv reads the auxiliary vector from the stack of a process that has not run
// yet: argc, argv, NULL, envp, NULL, auxv.
func (t *Process) auxv(sp uint64) (map[uint64]auxEntry, error) {
	const (
		window = 4096
		limit  = 16 << 20 // arguments take at most 6 MiB (fs/exec.c), their pointers can take more
	)
	var buf []byte
	word := func(i int) (uint64, error) {
		for len(buf) < 8*(i+1) {
			if len(buf) > limit {
				return 0, errors.New("auxiliary vector: no end")
			}
			b := make([]byte, window)
			n, err := t.mem.ReadAt(b, int64(sp)+int64(len(buf)))
			n &^= 7
			if n == 0 {
				return 0, fmt.Errorf("auxiliary vector: %w", err)
			}
			buf = append(buf, b[:n]...)
		}
		return le.Uint64(buf[8*i:]), nil
	}
	argc, err := word(0)
	if err != nil {
		return nil, err
	}
	if argc > limit/8 {
		return nil, fmt.Errorf("auxiliary vector: %d arguments", argc)
	}
	i := 1 + int(argc) + 1
	for {
		v, err := word(i)
		if err != nil {
			return nil, err
		}
		i++
		if v == 0 {
			break
		}
	}
	aux := make(map[uint64]auxEntry)
	for ; ; i += 2 {
		key, err := word(i)
		if err != nil {
			return nil, err
		}
		if key == atNull {
			return aux, nil
		}
		val, err := word(i + 1)
		if err != nil {
			return nil, err
		}
		aux[key] = auxEntry{val, sp + uint64(8*(i+1))}
	}
}

// auxValue returns a value of an auxiliary vector, 0 if there is none.
func auxValue(aux []byte, key uint64) uint64 {
	for ; len(aux) >= 16; aux = aux[16:] {
		if le.Uint64(aux) == key {
			return le.Uint64(aux[8:])
		}
	}
	return 0
}
