// Package safefile opens what a hostile party may have named or made.
//
// fentry is run by root on other users' programs, in directories that others can write, and reads traces that anybody
// can have made. A path can lead to a pipe without a writer, where open waits for ever; to a device, where open alone
// does something (a watchdog starts, a tape rewinds); through a symbolic link to a file that is not the other party's
// to name; or, between a check and the use, to something else. So
//
//   - only regular files and directories are opened, never waited for (O_NONBLOCK: pipes, and files with a lease), and
//     what they are is asked of the open descriptor;
//   - files that belong together, as those of a trace do, are opened by one name below the descriptor of their
//     directory ([Dir]), and no symbolic link is followed there;
//   - reading into memory has a limit ([ReadFile]).
//
// Paths of programs ([Open]) may go through symbolic links: refusing them would refuse /usr/bin/cc, and would not help
// against links in the directories above. Programs read that way are looked at and never believed; who needs to know
// whose file it is asks [Owner].
//
// What cannot be prevented: a path can lead into a file system that a program serves (FUSE, NFS) and that never
// answers. A caller that must not hang opens such a path in a goroutine that nobody has to wait for.
package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrNotRegular is returned for what is not a regular file: a pipe, a device, a directory, a socket.
var ErrNotRegular = errors.New("not a regular file")

// ErrLink is returned for a symbolic link where none is followed.
var ErrLink = errors.New("a symbolic link, which is not followed here")

// ErrTooLarge is returned for files of more bytes than the caller allows.
var ErrTooLarge = errors.New("file too large")

// always is set whatever is opened: nothing is waited for, no descriptor is inherited by programs, and no terminal
// becomes this process's own.
const always = unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// Open opens the regular file at path for reading. Symbolic links are followed. Errors are of type *fs.PathError.
func Open(path string) (*os.File, error) {
	fd, err := open(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// open opens a regular file that exists. The path is first looked up without being opened (O_PATH), and only what is a
// regular file then is opened, through /proc: there is no moment at which the path could be made to lead elsewhere.
// look are further flags for the first step.
func open(at int, path string, flags, look int) (int, error) {
	fd, err := retry(func() (int, error) { return unix.Openat(at, path, unix.O_PATH|unix.O_CLOEXEC|look, 0) })
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	switch kind, err := kindOf(fd); {
	case err != nil:
		return -1, err
	case kind == unix.S_IFLNK:
		return -1, ErrLink
	case kind != unix.S_IFREG:
		return -1, ErrNotRegular
	}
	again := "/proc/self/fd/" + strconv.Itoa(fd)
	r, err := retry(func() (int, error) { return unix.Open(again, flags|always, 0) })
	if err == unix.ENOENT {
		// Without /proc, as when packages are built in a bare directory.
		r, err = retry(func() (int, error) { return unix.Openat(at, path, flags|always|look, 0) })
	}
	if err != nil {
		return -1, err
	}
	if kind, err := kindOf(r); err != nil || kind != unix.S_IFREG {
		unix.Close(r)
		return -1, ErrNotRegular
	}
	return r, nil
}

// ReadFile returns the contents of the regular file at path, at most limit bytes; a longer file is an [ErrTooLarge].
// Symbolic links are followed.
func ReadFile(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// readAll reads f, which may grow meanwhile, and closes it.
func readAll(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = &fs.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)}
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Owner returns the user that an open file belongs to.
func Owner(f *os.File) (uid int, err error) {
	st, err := stat(int(f.Fd()))
	if err != nil {
		return 0, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return int(st.Uid), nil
}

// kindOf returns the S_IFMT bits of an open file's mode.
func kindOf(fd int) (uint32, error) {
	st, err := stat(fd)
	return st.Mode & unix.S_IFMT, err
}

func stat(fd int) (st unix.Stat_t, err error) {
	_, err = retry(func() (int, error) { return 0, unix.Fstat(fd, &st) })
	return st, err
}

// retry calls a system call again that a signal has interrupted: Go's own preempt goroutines.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}
