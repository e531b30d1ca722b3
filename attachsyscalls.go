//go:build linux

package fentry

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"strings"

	"github.com/fentry-dev/fentry/elfio"
	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session"
)

// System calls of processes that run already.
//
// They move as in programs that are started. Threads that wait in one are led to the copy, and back in the end. But
// unwinders do not know what was added to a process that runs, so a thread that is cancelled while it waits in a copy
// would be unwound no further: its caller's cleanups would be left out, and locks held. So system calls of programs that
// cancel threads stay where they are.

// cancelFunction is what a program that cancels threads calls.
const cancelFunction = "pthread_cancel"

// uncancelled returns an error for processes that can cancel threads. Of several, some can have ended.
func uncancelled(pids []int) error {
	for _, pid := range pids {
		file, err := cancels(pid)
		if len(pids) > 1 && errors.Is(err, session.ErrEnded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		if file != "" {
			return fmt.Errorf("process %d: system calls of a program that cancels threads (%s calls %s) %w",
				pid, file, cancelFunction, ErrAttach)
		}
	}
	return nil
}

// cancels returns the file among those that a process executes that cancels threads, "" if none does.
func cancels(pid int) (string, error) {
	maps, err := session.Maps(pid)
	if err != nil {
		return "", err
	}
	dir := session.ProcessDir(pid)
	found := false
	exe, err := os.Readlink(dir + "/exe")
	if err == nil {
		found, err = cancelsIn(dir+"/exe", true)
	}
	if err != nil {
		if _, ended := session.Maps(pid); ended != nil {
			return "", ended
		}
		return "", fmt.Errorf("%s: %w", exe, err)
	}
	if found {
		return exe, nil
	}
	for file := range executableFiles(maps) {
		if file == exe {
			continue
		}
		found, err = cancelsIn(dir+"/root"+file, false)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		if found {
			return file, nil
		}
	}
	return "", nil
}

// executableFiles yields the paths of the files of which mappings are executable, each once.
func executableFiles(maps []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := make(map[string]bool)
		for line := range strings.Lines(string(maps)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 6)
			if len(f) < 6 || !strings.Contains(f[1], "x") {
				continue
			}
			file := strings.TrimSuffix(strings.TrimLeft(f[5], " "), " (deleted)")
			if path.IsAbs(file) && !seen[file] {
				if seen[file] = true; !yield(file) {
					return
				}
			}
		}
	}
}

// inCode looks at an image that a process executes. A file that is none, code that the program has kept in a file of its own, is
// left alone.
func inCode(file string, look func(*elfio.File) error) error {
	in, err := safefile.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	magic := make([]byte, len(elf.ELFMAG))
	switch _, err := in.ReadAt(magic, 0); {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case string(magic) != elf.ELFMAG:
		return nil
	}
	return withImage(in, look)
}

// cancelsIn tells whether an image cancels threads: it takes the function from the C library, or has it in itself.
func cancelsIn(file string, program bool) (found bool, err error) {
	known := !program
	err = inCode(file, func(f *elfio.File) error {
		dynamic, err := f.DynamicSymbols()
		if err != nil {
			return err
		}
		for _, sym := range dynamic { // a weak one is how libraries ask whether there are threads
			found = found || sym.Name == cancelFunction && !sym.Defined() && sym.Bind() == elf.STB_GLOBAL
		}
		if !program {
			return nil
		}
		own, err := f.Symbols()
		for _, sym := range own {
			found = found || sym.Name == cancelFunction
		}
		known = err == nil && (len(own) > 0 || dynamic != nil)
		return nil
	})
	if err == nil && !known {
		err = errors.New("whether it cancels threads is not known, as it has no symbols")
	}
	return found, err
}
