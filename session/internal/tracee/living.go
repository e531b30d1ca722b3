//go:build linux

package tracee

import (
	"fmt"
	"os"

	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// What all threads have is read by the directory of one that has it still: a first thread can end at any time, and others go on.

// openMemory opens the memory of a process, and returns the auxiliary vector of the program that it ran before: if this is still so
// when it is stopped, that is its memory.
func openMemory(pid int) (aux []byte, mem *os.File, err error) {
	err = procfs.InLive(pid, func(dir string) error {
		if aux, err = readSome(dir + "/auxv"); err != nil {
			return err
		}
		if mem, err = os.OpenFile(dir+"/mem", os.O_RDWR, 0); err != nil {
			return err
		}
		if _, err = readSome(dir + "/auxv"); err != nil { // then there is nothing behind mem either
			mem.Close()
		}
		return err
	})
	return aux, mem, err
}

// auxOf is the auxiliary vector of a process.
func auxOf(pid int) (aux []byte, err error) {
	err = procfs.InLive(pid, func(dir string) error {
		aux, err = readSome(dir + "/auxv")
		return err
	})
	return aux, err
}

// mapsOf are the mappings of a process.
func mapsOf(pid int) (ms []mapping, err error) {
	err = procfs.InLive(pid, func(dir string) error {
		ms, err = readMaps(dir)
		return err
	})
	return ms, err
}

// readSome reads a file that is empty for a thread without memory.
func readSome(path string) ([]byte, error) {
	b, err := readFile(path)
	if err == nil && len(b) == 0 {
		err = fmt.Errorf("%s: empty", path)
	}
	return b, err
}
