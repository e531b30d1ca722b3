package tracee

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fentry-dev/fentry/internal/safefile"
	"github.com/fentry-dev/fentry/session/internal/procfs"
)

// Code that was mapped from a copy in which it is changed (code.go) has other pages to go back to: those of the program's own file,
// which its process opens and maps there again.

// codeCopies are files that programs' code was mapped from.
type codeCopies []codeCopy

type codeCopy struct {
	file  os.FileInfo
	added int64 // where what is added begins, which is not the program's
}

// have tells whether a mapping is of one of them, and the program's.
func (cs codeCopies) have(m *mapping) bool {
	return slices.ContainsFunc(cs, func(c codeCopy) bool {
		if !m.isOf(c.file) {
			return false
		}
		off, err := m.offset()
		return err == nil && off < c.added
	})
}

// copies are the files that images' code was mapped from.
func (a *Attachment) copies() (all codeCopies) {
	for _, im := range a.images {
		if im.library != nil || im.m.Code == nil {
			continue
		}
		if st, err := im.m.Code.Stat(); err == nil {
			all = append(all, codeCopy{st, im.m.CodeRX})
		}
	}
	return all
}

// A backer gives pages back in one stop, by a thread that makes calls. It opens the program's file in the process if that is needed.
type backer struct {
	*remote
	fd                  uint64
	tried, open, usable bool
}

// giveBack gives back what of a stretch is as it is in the file.
func (b *backer) giveBack(ms []mapping, s *fileStretch) error {
	switch {
	case !s.stays(ms):
		return nil
	case !s.copied:
		return b.remote.giveBack(s)
	}
	now := make([]byte, len(s.was))
	if len(now) == 0 || (stopped{&b.t.Process}).ReadAt(now, s.at) != nil || !bytes.Equal(now, s.was) {
		return nil
	}
	if err := b.openExe(s.f); err != nil || !b.usable {
		return err
	}
	return b.mapExe(s.area, &s.in, s.offset)
}

// mapExe maps an area from an offset of the program's file on, which is open, in place of a part of a mapping.
func (b *backer) mapExe(at area, in *mapping, offset int64) error {
	const flags = unix.MAP_PRIVATE | unix.MAP_FIXED
	_, err := b.call(unix.SYS_MMAP, at.at, at.size, uint64(in.protection()), flags, b.fd, uint64(offset))
	return unrefused(err)
}

// giveBackOthers maps what else was mapped from copies from the program's file, if no code is any more. What has pages of its own
// stays: the search table of unwind entries is changed.
func (ts *threads) giveBackOthers(copies codeCopies) error {
	others := func(ms []mapping) (all []mapping) {
		for i := range ms {
			m := &ms[i]
			switch {
			case !copies.have(m):
			case m.perms != "r--p":
				return nil
			case untouched(procfs.Dir(ts.pid), m.lo, m.hi):
				all = append(all, *m)
			}
		}
		return all
	}
	if len(copies) == 0 {
		return nil
	}
	if ms, err := ts.maps(); err != nil || len(others(ms)) == 0 {
		return err
	}
	exe, err := safefile.Open(procfs.Dir(ts.pid) + "/exe")
	if err != nil {
		return nil
	}
	defer exe.Close()
	return ts.within(false, func() error {
		ms, err := ts.maps()
		if err != nil {
			return err
		}
		all := others(ms)
		return ts.calling(ms, func(r *remote) (err error) {
			b := &backer{remote: r}
			if r.filtered() {
				return nil
			}
			defer func() { err = errors.Join(err, b.close()) }()
			if err := b.openExe(exe); err != nil || !b.usable {
				return err
			}
			for i := range all {
				m := &all[i]
				if offset, oerr := m.offset(); oerr == nil && err == nil {
					err = b.mapExe(area{m.lo, m.hi - m.lo}, m, offset)
				}
			}
			return err
		})
	})
}

// openExe has the process open its program's file, which is to be f.
func (b *backer) openExe(f *os.File) error {
	if b.tried {
		return nil
	}
	b.tried = true
	stack, err := b.mapStack()
	if err != nil {
		return unrefused(err)
	}
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	cwd, path := unix.AT_FDCWD, stack.lo+remoteRoom
	if err = b.t.WriteAt([]byte("/proc/self/exe\x00"), path); err == nil {
		b.fd, err = b.call(unix.SYS_OPENAT, uint64(cwd), path, flags, 0)
		b.open = err == nil
	}
	err = unrefused(err)
	if uerr := b.unmapStack(stack); err == nil {
		err = uerr
	}
	if err != nil || !b.open {
		return err
	}
	// It can see another /proc.
	is, isErr := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", b.pid, b.fd))
	want, wantErr := f.Stat()
	b.usable = isErr == nil && wantErr == nil && os.SameFile(is, want)
	return nil
}

// close closes in the process what it has opened.
func (b *backer) close() error {
	if !b.open {
		return nil
	}
	_, err := b.call(unix.SYS_CLOSE, b.fd)
	return unrefused(err)
}

// unrefused is an error that is not the kernel's answer to a call: what it refuses is left as it is.
func unrefused(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return nil
	}
	return err
}
