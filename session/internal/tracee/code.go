//go:build linux

package tracee

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/arch"
	"github.com/fentry-dev/fentry/patch"
)

// Code that has been changed before: a program whose plan has a file of it has that mapped in place of its own, at its exec stop.
// What is asked about it then, and how it is written to, is as if it had been changed in place.

// A codeFile is what of a plan's file is mapped in a process.
type codeFile struct {
	path string
	sp   uint64      // the stack's end
	maps []call      // in place of the program's own file, but for the descriptor: its code, and what can only be read
	left []arch.Edit // what is still to be changed then
}

// codeFile tells what is to be mapped of the plan's file; nil: nothing can be.
func (t *Process) codeFile(m *patch.Memory, bias uint64, regs *registers) *codeFile {
	if m.Code == nil {
		return nil
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", m.Code.Fd()))
	text, others, ok := t.codeOfFile()
	if err != nil || !ok || t.parked == nil && text.lo <= regs.pc() && regs.pc() < text.hi { // calls are made from there
		return nil
	}
	left, ok := m.BesideCode(text.lo-bias, text.hi-bias)
	if !ok {
		return nil
	}
	c := &codeFile{path: path, sp: regs.sp(), left: left}
	for _, p := range append([]mapping{text}, others...) {
		off, err := p.offset()
		if err != nil {
			return nil
		}
		const flags = unix.MAP_PRIVATE | unix.MAP_FIXED
		c.maps = append(c.maps, call{nr: unix.SYS_MMAP, args: [6]uint64{p.lo, p.hi - p.lo, uint64(p.protection()), flags, 0, uint64(off)}})
	}
	return c
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
	ms, err := t.mappings()
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

// mappings are those of a process at its exec stop, before anything is added.
func (t *Process) mappings() ([]mapping, error) {
	if t.parked != nil {
		return t.parked.maps, nil
	}
	return readMaps(fmt.Sprintf("/proc/%d", t.pid))
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

// mapCode maps the added code at a place, and the program's in place of its own. The process, which opens the file by its path, can
// see other files, or must not open or map it, as a file system without programs refuses it: then added is false, and nothing has
// changed. all: so are all edits still to be made, else those that the file leaves.
func (t *Process) mapCode(m *patch.Memory, c *codeFile, rx call) (all, added bool, err error) {
	fd, opened, err := t.openFile(c)
	if err != nil || !opened {
		return true, false, err
	}
	closes := call{nr: unix.SYS_CLOSE, args: [6]uint64{fd}}
	is, isErr := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd))
	want, wantErr := m.Code.Stat()
	if isErr != nil || wantErr != nil || !os.SameFile(is, want) {
		_, err := t.makes([]call{closes})
		return true, false, err
	}
	rx.args[3], rx.args[5] = unix.MAP_PRIVATE|mapFixedNoreplace, uint64(m.CodeRX)
	calls := append([]call{rx}, c.maps...)
	for i := range calls {
		calls[i].args[4] = fd
	}
	calls = append(calls, closes)
	was := t.changed
	t.changed, added = true, true
	for i := 0; i < len(calls); i++ { // again behind each that is refused
		done, err := t.makes(calls[i:])
		if i += done; err == nil {
			break
		}
		if !refused(err) {
			return false, false, err
		}
		if i < 2 { // the program keeps its own code, and there is nothing more but to close the file
			t.changed, all, added = was, true, i == 1
			i = len(calls) - 2
		}
	}
	if got := calls[0].value; added && got != rx.args[0] {
		return false, false, &RefusedError{fmt.Errorf("code that is added is mapped at %#x, not %#x", got, rx.args[0])}
	}
	return all, added, nil
}

// openFile has the process open a file.
func (t *Process) openFile(c *codeFile) (fd uint64, opened bool, err error) {
	const below = 1024 // as in give
	name := append([]byte(c.path), 0)
	room := c.sp - below - uint64(len(name))
	saved := make([]byte, len(name))
	if t.ReadAt(saved, room) != nil {
		return 0, false, nil
	}
	if err := t.WriteAt(name, room); err != nil {
		return 0, false, err
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	cwd := unix.AT_FDCWD
	fd, err = t.syscall(unix.SYS_OPENAT, uint64(cwd), room, flags, 0)
	if opened = err == nil; refused(err) {
		err = nil
	}
	return fd, opened, errors.Join(err, t.WriteAt(saved, room))
}

// refused tells whether an error is the kernel's answer to a system call that a process was made to make.
func refused(err error) bool {
	_, is := err.(syscall.Errno)
	return is
}
