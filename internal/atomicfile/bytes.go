package atomicfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// WriteBytes does what Write with Options{NoSync: true} does for a file that is open as fd, of which st is the state,
// with as few system calls as that takes: a build calls it thousands of times. The contents are the concatenation of
// parts; alone is Options.Alone.
func WriteBytes(path string, fd int, st *unix.Stat_t, parts [][]byte, alone bool) error {
	if err := writeBytes(path, fd, st, parts, alone); err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			return &fs.PathError{Op: pe.Op, Path: path, Err: pe.Err}
		}
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func writeBytes(path string, fd int, st *unix.Stat_t, parts [][]byte, alone bool) error {
	dest := path
	var l unix.Stat_t
	if err := unix.Lstat(path, &l); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if l.Mode&unix.S_IFMT == unix.S_IFLNK {
		t, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		dest = t
	}
	dir := filepath.Dir(dest)
	w, err := retry(func() (int, error) {
		return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	})
	name := ""
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		name = tempName(dest, alone)
		err = fresh(name, alone, func() error {
			w, err = retry(func() (int, error) {
				return unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
			})
			return err
		})
	}
	if err != nil {
		return &fs.PathError{Op: "create", Path: dir, Err: err}
	}
	defer func() {
		unix.Close(w)
		if name != "" {
			unix.Unlink(name)
		}
	}()
	if err := writeAll(w, parts); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	if err := copyState(w, fd, st); err != nil {
		return err
	}
	if name == "" {
		name = tempName(dest, alone)
		err := fresh(name, alone, func() error {
			return unix.Linkat(unix.AT_FDCWD, fdPath(w), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
		})
		if err != nil {
			name = ""
			return &fs.PathError{Op: "link", Path: path, Err: err}
		}
	}
	if err := unix.Rename(name, dest); err != nil {
		return &fs.PathError{Op: "rename", Path: path, Err: err}
	}
	name = ""
	return nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// writeAll writes all parts. The kernel writes less than asked for where the disk is full or a limit is reached; the
// next attempt says why.
func writeAll(fd int, parts [][]byte) error {
	parts = slices.Clone(parts)
	for {
		for len(parts) > 0 && len(parts[0]) == 0 {
			parts = parts[1:]
		}
		if len(parts) == 0 {
			return nil
		}
		n, err := retry(func() (int, error) { return unix.Writev(fd, parts[:min(len(parts), iovMax)]) })
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrShortWrite
		}
		for n > 0 {
			k := min(n, len(parts[0]))
			parts[0] = parts[0][k:]
			n -= k
			if len(parts[0]) == 0 {
				parts = parts[1:]
			}
		}
	}
}

// iovMax is UIO_MAXIOV of Linux.
const iovMax = 1024

// copyState gives w the owner, mode and extended attributes of the open file fd.
func copyState(w, fd int, st *unix.Stat_t) error {
	drop := false
	if int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
		drop = unix.Fchown(w, int(st.Uid), int(st.Gid)) != nil // only root may give files away
	}
	mode := st.Mode & 0o7777
	if drop {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	if err := unix.Fchmod(w, mode); err != nil {
		return &fs.PathError{Op: "chmod", Err: err}
	}
	n, err := unix.Flistxattr(fd, nil)
	if err != nil || n == 0 {
		return nil // no attributes, or a file system without them
	}
	f, err := syscall.Dup(w)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(f), "(new)")
	defer file.Close()
	return copyXattrs(file, fdPath(fd), Options{DropSetID: drop})
}
