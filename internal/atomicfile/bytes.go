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
// with as few system calls as that takes: a build calls it thousands of times. The file's name dest is not that of a
// symbolic link. The contents are the concatenation of parts; alone is Options.Alone.
func WriteBytes(dest string, fd int, st *unix.Stat_t, parts [][]byte, alone bool) error {
	if err := writeBytes(dest, fd, st, parts, alone); err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			return &fs.PathError{Op: pe.Op, Path: dest, Err: pe.Err}
		}
		return &fs.PathError{Op: "write", Path: dest, Err: err}
	}
	return nil
}

func writeBytes(dest string, fd int, st *unix.Stat_t, parts [][]byte, alone bool) error {
	dir := filepath.Dir(dest)
	// Most files belong to who builds them, and the umask has had its say: then nothing is left to change.
	mode := st.Mode & 0o777
	if int(st.Uid) != os.Geteuid() {
		mode = 0o600
	}
	w, err := retry(func() (int, error) {
		return unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, mode)
	})
	name := ""
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EINVAL) {
		name = filepath.Join(dir, tempName(dest, alone))
		err = fresh(unix.AT_FDCWD, name, alone, func() error {
			w, err = retry(func() (int, error) {
				return unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, mode)
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
	if err := reserve(w, parts); err != nil {
		return err
	}
	if err := writeAll(w, parts); err != nil {
		return &fs.PathError{Op: "write", Path: dest, Err: err}
	}
	if err := copyState(w, fd, st); err != nil {
		return err
	}
	if name == "" {
		name = filepath.Join(dir, tempName(dest, alone))
		err := fresh(unix.AT_FDCWD, name, alone, func() error { return linkFile(w, unix.AT_FDCWD, name) })
		if err != nil {
			name = ""
			return &fs.PathError{Op: "link", Path: dest, Err: err}
		}
	}
	if err := unix.Rename(name, dest); err != nil {
		return &fs.PathError{Op: "rename", Path: dest, Err: err}
	}
	name = ""
	return nil
}

// linkFile gives an open file without a name one below the directory at. The direct way is allowed to root, and since Linux 6.10 to whoever
// has opened the file; the other one makes the kernel build a directory of /proc.
func linkFile(fd, at int, name string) error {
	err := unix.Linkat(fd, "", at, name, unix.AT_EMPTY_PATH)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPERM) ||
		errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINVAL) {
		err = unix.Linkat(unix.AT_FDCWD, fdPath(fd), at, name, unix.AT_SYMLINK_FOLLOW)
	}
	return err
}

// reserve allocates the space of a file on ext4. That file system puts off looking for space until it writes to disk,
// but not for a file that replaces another: those it starts to write at once (mount option auto_da_alloc), unless
// they have their space already.
func reserve(fd int, parts [][]byte) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.EXT4_SUPER_MAGIC {
		return nil
	}
	size := int64(0)
	for _, p := range parts {
		size += int64(len(p))
	}
	if size == 0 {
		return nil
	}
	_, err := retry(func() (int, error) { return 0, unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return err
	}
	return nil // it is only for speed
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

// copyState gives w the owner, mode and extended attributes of the open file fd, as far as it has others.
func copyState(w, fd int, st *unix.Stat_t) error {
	var have unix.Stat_t
	if err := unix.Fstat(w, &have); err != nil {
		return &fs.PathError{Op: "stat", Err: err}
	}
	drop, changed := false, false
	if have.Uid != st.Uid || have.Gid != st.Gid {
		drop = unix.Fchown(w, int(st.Uid), int(st.Gid)) != nil // only root may give files away
		changed = true
	}
	mode := st.Mode & 0o7777
	if drop {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	if changed || have.Mode&0o7777 != mode {
		if err := unix.Fchmod(w, mode); err != nil {
			return &fs.PathError{Op: "chmod", Err: err}
		}
	}
	n, err := unix.Flistxattr(fd, nil)
	if err != nil || n == 0 {
		dropACL(w)
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
