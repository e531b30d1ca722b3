//go:build linux

package tracee

import (
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// Code that has been changed before: a program whose plan has a file of it has that mapped in place of its own, at its exec stop.
// What is asked about it then, and how it is written to, is as if it had been changed in place.

// mapCode maps the plan's code, and returns the edits that are still to be made. Where it cannot be mapped, these are all.
func (t *Process) mapCode(m *patch.Memory, bias uint64, regs *registers) ([]arch.Edit, error) {
	if m.Code == nil {
		return m.Edits, nil
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.Code.Fd()))
	text, others, ok := t.codeOfFile()
	if err != nil || !ok || t.parked == nil && text.lo <= regs.pc() && regs.pc() < text.hi { // calls are made from there
		return m.Edits, nil
	}
	below, in, above, ok := m.CodeEdits(text.lo-bias, text.hi-bias)
	if !ok || len(in) == 0 {
		return m.Edits, nil
	}
	mapped, err := t.mapFile(m.Code, path, append([]mapping{text}, others...), regs.sp())
	if err != nil || !mapped {
		return m.Edits, err
	}
	return slices.Concat(below, above), nil
}

// codeOfFile is where the process has mapped code of its file, if that is one mapping, of which no page is its own. One is where the
// kernel has put a breakpoint (uprobes), which is not in any other file. others are where it has mapped what it can only read: who
// looks for the file of code by the mappings of a process (elfutils) takes code for the beginning of a file of which there is nothing
// else.
func (t *Process) codeOfFile() (code mapping, others []mapping, ok bool) {
	dir := fmt.Sprintf("/proc/%d", t.pid)
	exe, err := os.Stat(dir + "/exe")
	if err != nil {
		return code, nil, false
	}
	ms, err := readMaps(dir)
	if err != nil {
		return code, nil, false
	}
	n := 0
	for _, m := range ms {
		switch {
		case !m.isOf(exe):
		case m.perms == "r-xp":
			code = m
			n++
		case m.perms == "r--p" && untouched(dir, m.lo, m.hi):
			others = append(others, m)
		}
	}
	return code, others, n == 1 && untouched(dir, code.lo, code.hi)
}

// untouched reports whether a process, whose directory in /proc is given, has no pages of its own in a part of a mapping.
func untouched(dir string, lo, hi uint64) bool {
	const entry, present, swapped, file = 8, 1 << 63, 1 << 62, 1 << 61 // Documentation/admin-guide/mm/pagemap.rst
	pagemap, err := os.Open(dir + "/pagemap")
	if err != nil {
		return false
	}
	defer pagemap.Close()
	buf := make([]byte, min((hi-lo)/PageSize, 8192)*entry)
	for at := lo; at < hi; {
		b := buf[:min(uint64(len(buf)), (hi-at)/PageSize*entry)]
		if n, _ := pagemap.ReadAt(b, int64(at/PageSize*entry)); n < len(b) {
			return false
		}
		for ; len(b) > 0; b = b[entry:] {
			if e := le.Uint64(b); e&swapped != 0 || e&(present|file) == present {
				return false
			}
			at += PageSize
		}
	}
	return true
}

// mapFile maps a file, whose path is given, in place of what is mapped from the same places of another one: of the first of all, or
// it returns false and has changed nothing. The process, which opens it by its path, can see other files, or must not open or map it.
func (t *Process) mapFile(f *os.File, path string, all []mapping, sp uint64) (bool, error) {
	const below = 1024 // as in give
	name := append([]byte(path), 0)
	room := sp - below - uint64(len(name))
	saved := make([]byte, len(name))
	if t.ReadAt(saved, room) != nil {
		return false, nil
	}
	if err := t.WriteAt(name, room); err != nil {
		return false, err
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	cwd := unix.AT_FDCWD
	fd, opened, err := t.attempt(unix.SYS_OPENAT, uint64(cwd), room, flags, 0)
	if werr := t.WriteAt(saved, room); err == nil {
		err = werr
	}
	if err != nil || !opened {
		return false, err
	}
	is, isErr := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd))
	want, wantErr := f.Stat()
	mapped := false
	if isErr == nil && wantErr == nil && os.SameFile(is, want) {
		// A file system without programs, or a policy, refuses it before anything is changed.
		mapped, err = t.mapAt(fd, &all[0])
		t.changed = t.changed || mapped || err != nil
		for i := 1; i < len(all) && mapped && err == nil; i++ {
			_, err = t.mapAt(fd, &all[i])
		}
	}
	if _, _, cerr := t.attempt(unix.SYS_CLOSE, fd); err == nil {
		err = cerr
	}
	return mapped, err
}

// mapAt maps a file that the process has open where it has mapped the same place of another one.
func (t *Process) mapAt(fd uint64, m *mapping) (mapped bool, err error) {
	off, err := m.offset()
	if err != nil {
		return false, nil
	}
	_, mapped, err = t.attempt(unix.SYS_MMAP, m.lo, m.hi-m.lo, uint64(m.protection()), unix.MAP_PRIVATE|unix.MAP_FIXED, fd, uint64(off))
	return mapped, err
}

// attempt is syscall for calls that may be refused.
func (t *Process) attempt(nr uint64, args ...uint64) (value uint64, done bool, err error) {
	value, err = t.syscall(nr, args...)
	if _, refused := err.(syscall.Errno); refused {
		return 0, false, nil
	}
	return value, err == nil, err
}
