package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A Dir is an open directory. Its methods take the name of one file in it, not a path, and never follow a symbolic
// link of that name ([ErrLink]). Whoever renames the directory, or puts another in its place, does not disturb. Errors
// are of type *fs.PathError and name files by the path that the directory was opened by.
type Dir struct {
	f *os.File
}

// OpenDir opens the directory at path. Symbolic links are followed, as users give such paths; see [Dir.OpenDir].
func OpenDir(path string) (*Dir, error) { return openDir(unix.AT_FDCWD, path, path, 0) }

func openDir(at int, name, path string, flags int) (*Dir, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return &Dir{os.NewFile(uintptr(fd), path)}, nil
}

// Name is the path that the directory was opened by.
func (d *Dir) Name() string { return d.f.Name() }

// Fd is the directory's descriptor, valid until Close. It is one to look files up by (O_PATH): permission to read the
// directory is not needed.
func (d *Dir) Fd() int { return int(d.f.Fd()) }

// Close closes the directory; nil has nothing to close.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	return d.f.Close()
}

// path is what a file is called in messages.
func (d *Dir) path(name string) string { return filepath.Join(d.Name(), name) }

// do calls a system call for one file of the directory.
func (d *Dir) do(op, name string, call func(dir int) (int, error)) (int, error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return -1, &fs.PathError{Op: op, Path: d.path(name), Err: fs.ErrInvalid}
	}
	n, err := retry(func() (int, error) { return call(d.Fd()) })
	if err != nil {
		return -1, &fs.PathError{Op: op, Path: d.path(name), Err: err}
	}
	return n, nil
}

// OpenDir opens a directory in the directory.
func (d *Dir) OpenDir(name string) (*Dir, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW
	fd, err := d.do("open", name, func(dir int) (int, error) { return unix.Openat(dir, name, flags, 0) })
	if err != nil {
		return nil, err
	}
	return &Dir{os.NewFile(uintptr(fd), d.path(name))}, nil
}

// Root returns the directory as one in which paths can be used. It needs /proc, and names files below it by that.
func (d *Dir) Root() (*os.Root, error) { return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", d.Fd())) }

// Open opens a regular file for reading.
func (d *Dir) Open(name string) (*os.File, error) { return d.OpenFile(name, os.O_RDONLY) }

// OpenFile opens a regular file that exists. flags are those of [os.OpenFile] but O_CREATE, for which there is
// [Dir.Create].
func (d *Dir) OpenFile(name string, flags int) (*os.File, error) {
	fd, err := d.do("open", name, func(dir int) (int, error) {
		return open(dir, name, flags&^os.O_CREATE, unix.O_NOFOLLOW)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.path(name)), nil
}

// Create makes a new regular file that only this user can read and write (0600), and opens it with the flags of
// [os.OpenFile]; something of that name is an error.
func (d *Dir) Create(name string, flags int) (*os.File, error) {
	fd, err := d.do("create", name, func(dir int) (int, error) {
		return unix.Openat(dir, name, flags|unix.O_CREAT|unix.O_EXCL|always|unix.O_NOFOLLOW, 0o600)
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.path(name)), nil
}

// ReadFile returns the contents of a regular file, at most limit bytes; a longer one is an [ErrTooLarge].
func (d *Dir) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

// Mkdir makes a directory that only this user can use (0700), and opens it. Should another one take its place at that
// moment, that is an error.
func (d *Dir) Mkdir(name string) (*Dir, error) {
	if _, err := d.do("mkdir", name, func(dir int) (int, error) { return 0, unix.Mkdirat(dir, name, 0o700) }); err != nil {
		return nil, err
	}
	sub, err := d.OpenDir(name)
	if err != nil {
		return nil, err
	}
	if err := sub.Ours(); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// Lstat returns the state of a file, a symbolic link's own if it is one.
func (d *Dir) Lstat(name string) (st unix.Stat_t, err error) {
	_, err = d.do("stat", name, func(dir int) (int, error) {
		return 0, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	return st, err
}

// Stat returns the state of the directory itself.
func (d *Dir) Stat() (unix.Stat_t, error) {
	st, err := stat(d.Fd())
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: d.Name(), Err: err}
	}
	return st, nil
}

// Remove removes a file, not a directory.
func (d *Dir) Remove(name string) error {
	_, err := d.do("remove", name, func(dir int) (int, error) { return 0, unix.Unlinkat(dir, name, 0) })
	return err
}

// Rmdir removes an empty directory.
func (d *Dir) Rmdir(name string) error {
	_, err := d.do("remove", name, func(dir int) (int, error) { return 0, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
	return err
}

// Rename renames a file or directory within the directory. One that has the new name already is replaced, a directory
// if it is empty.
func (d *Dir) Rename(from, to string) error {
	_, err := d.do("rename", from, func(dir int) (int, error) {
		_, err := d.do("rename", to, func(int) (int, error) { return 0, unix.Renameat(dir, from, dir, to) })
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return 0, err
	})
	return err
}

// Reopen returns a descriptor of the directory itself that it can be read and locked with.
func (d *Dir) Reopen() (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.Fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), d.Name()), nil
}

// Chmod changes the permissions of the directory itself.
func (d *Dir) Chmod(mode uint32) error {
	if err := unix.Fchmodat(d.Fd(), ".", mode, 0); err != nil {
		return &fs.PathError{Op: "chmod", Path: d.Name(), Err: err}
	}
	return nil
}

// ReadDir lists the directory in no order; more than limit entries are an [ErrTooLarge]. The types of its entries are
// theirs, not those of what links lead to.
func (d *Dir) ReadDir(limit int) ([]fs.DirEntry, error) {
	f, err := d.Reopen()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(limit + 1)
	switch {
	case errors.Is(err, io.EOF):
		err = nil
	case err == nil && len(entries) > limit:
		err = &fs.PathError{Op: "read", Path: d.Name(), Err: fmt.Errorf("%w: more than %d files", ErrTooLarge, limit)}
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// Ours returns an error unless the directory belongs to this user (the effective one) and nobody else can make or
// rename files in it. Then what is in it was put there by this user or by root.
func (d *Dir) Ours() error {
	st, err := d.Stat()
	if err != nil {
		return err
	}
	if int(st.Uid) != os.Geteuid() {
		return &fs.PathError{Op: "use", Path: d.Name(), Err: fmt.Errorf("belongs to user %d", st.Uid)}
	}
	if st.Mode&0o022 != 0 {
		return &fs.PathError{Op: "use", Path: d.Name(),
			Err: fmt.Errorf("others can write in it (mode %04o)", st.Mode&0o7777)}
	}
	return nil
}
